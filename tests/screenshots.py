"""The README's screenshots of MLflow, taken anew from a real server: `python -m tests.screenshots`. No test.

It sends the records of 4 GPUs that are published here, starts `mlflow server` on a database of its own, and writes PNGs
of 256 colours into reports/screenshots/. Chromium and playwright are needed, as for the browser tests, and Pillow,
which matplotlib brings.
"""

import io
import sys
import tempfile
from pathlib import Path

from reports.record.writing import write_file
from symlab.command import main as symlab
from tests.browser import OPTIONS, executable
from tests.dashboard import chart, colours, open_report, open_view, page_of, serving

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "reports" / "screenshots"
PUBLISHED = ROOT / "reports" / "published" / "h200-x4" / "all_reduce-world1.jsonl.xz"
COLOURS = 256
MOST_BYTES = 200_000
MEASURED = "h200-x4"


def main():
    with tempfile.TemporaryDirectory() as place:
        database = Path(place) / "mlflow.db"
        assert symlab(["track", str(PUBLISHED), "--uri", f"sqlite:///{database}", "--experiment", MEASURED]) == 0
        from playwright.sync_api import sync_playwright

        with serving(database) as address, sync_playwright() as playwright:
            path = executable(playwright.chromium.executable_path)
            with playwright.chromium.launch(executable_path=path, args=list(OPTIONS)) as browser:
                take(browser, address, *ids(f"sqlite:///{database}"))
    return 0


def ids(uri):
    """The ids of the experiment and of its command."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name(MEASURED).experiment_id
    (run,) = client.search_runs([experiment], "tags.`symlab.series` = ''")
    return str(experiment), str(run.info.run_id)


def take(browser, address, measured, run):
    with page_of(browser, address, 1500, 1180) as page:
        open_view(page, address, measured, "Latency and bus bandwidth over bytes")
        search(page, "metrics.`latency/time_us` > 0 and params.dtype = 'bfloat16'")
        for metric in ("latency/time_us", "latency/time_us_p99", "bandwidth/busbw_gbps", "bandwidth/of_limit"):
            wait_for(page, metric, 9)
        keep(page, "latency-and-bandwidth.png")
    with page_of(browser, address, 1500, 1000) as page:
        report = open_report(page, address, measured, run)
        report.locator("h1").first.wait_for()
        report.locator("figure svg, svg[role=img]").first.evaluate("one => one.scrollIntoView({block: 'center'})")
        keep(page, "report.png")


def search(page, text):
    """Narrow the runs that are shown."""
    box = page.get_by_test_id("search-box")
    box.fill(text)
    box.press("Enter")
    page.wait_for_url(lambda url: "params.dtype" in url)
    page.get_by_role("alert").get_by_role("button").last.click()  # that this view is one that others share
    box.blur()


def wait_for(page, metric, count):
    """Until a chart has lines of so many colours."""
    for _ in range(120):
        if len(colours(chart(page, metric))) == count:
            return
        page.wait_for_timeout(500)
    raise RuntimeError(f"{metric}: {sorted(colours(chart(page, metric)))}, not {count} colours")


def keep(page, name):
    from PIL import Image

    page.mouse.move(0, 0)
    page.wait_for_timeout(3000)  # until what moves has come to rest
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    file = io.BytesIO()
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(
        file, "PNG", optimize=True
    )
    assert file.tell() < MOST_BYTES, f"{name}: {file.tell()} bytes"
    PLACE.mkdir(exist_ok=True)
    write_file(PLACE / name, file.getvalue())
    print(f"{PLACE / name}: {file.tell()} bytes")


if __name__ == "__main__":
    sys.exit(main())
