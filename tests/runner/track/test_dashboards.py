"""What we send, as people see it in MLflow's own pages: a real server, a real browser, records of real GPUs."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path

import pytest

from reports.record import bundle
from reports.tracking import SERIES_TAG
from runner.track.pages import page_of_view, view_key
from runner.track.views import VIEWS
from symlab.command import main as symlab
from tests.dashboard import chart, colours, open_report, open_view, page_of, serving

PUBLISHED = Path(__file__).parents[3] / "reports" / "published" / "h200-x4" / "all_reduce-world1.jsonl.xz"

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Dashboard:
    """A running server and what is in it: the run of the command whose records are those of real GPUs."""

    address: str
    experiment: str
    run: str
    command: str


@pytest.fixture(scope="module")
def dashboard(browser, tmp_path_factory):
    """Series in bfloat16 that were measured on 4 GPUs; the browser first: without, all is skipped."""
    folder = tmp_path_factory.mktemp("dashboard")
    measured = [one for one in bundle.unpacked(PUBLISHED) if one.case.dtype == "bfloat16"]
    bundle.write(measured, folder / "measured.jsonl.xz", is_quick=True)
    database = folder / "mlflow.db"
    places = [str(folder / "measured.jsonl.xz"), "--uri", f"sqlite:///{database}"]
    assert symlab(["track", *places, "--experiment", "seen"]) == 0
    with sqlite3.connect(database) as connection:
        (experiment,) = connection.execute("select experiment_id from experiments where name = 'seen'").fetchone()
        (run,) = connection.execute(
            "select a.run_uuid from tags a join tags b on a.run_uuid = b.run_uuid "
            "where a.key = ? and a.value = '' and b.key = 'simulated' and b.value = 'false' "
            "and a.run_uuid in (select run_uuid from params where key = 'experiment' and value = 'allreduce_gpus')",
            (SERIES_TAG,),
        ).fetchone()
    with serving(database) as address:
        yield Dashboard(address, str(experiment), str(run), measured[0].request.command)


def test_latency_and_bus_bandwidth_are_overlaid_over_bytes(browser, dashboard):
    with page_of(browser, dashboard.address) as page:
        open_view(page, dashboard.address, dashboard.experiment, "Latency and bus bandwidth over bytes")
        time_us = chart(page, "latency/time_us")
        found = colours(time_us)
        assert len(found) == 9  # ten series, one of which was refused
        assert {"rgb(0, 114, 178)", "rgb(127, 127, 127)"} <= found  # one_shot as in every picture; nccl, paler
        assert "1M" in time_us.locator(".xtick text").all_text_contents()  # 1 KiB to 256 MiB on a logarithmic axis
        assert colours(chart(page, "bandwidth/busbw_gbps")) == found


@pytest.mark.parametrize("view", [view.name for view in VIEWS if view.charts])
def test_every_view_is_listed_and_opens(browser, dashboard, view):
    with page_of(browser, dashboard.address) as page:
        open_view(page, dashboard.address, dashboard.experiment, view)
        page.locator("[data-testid='experiment-view-compare-runs-card']").first.wait_for()
        assert page.get_by_text("Error loading shared view").count() == 0


def test_the_report_is_seen_where_artifacts_are(browser, dashboard):
    with page_of(browser, dashboard.address) as page:
        report = open_report(page, dashboard.address, dashboard.experiment, dashboard.run)
        headline = report.locator("h1").first
        headline.wait_for()
        assert "all_reduce" in headline.inner_text()
        picture = report.locator("svg[role=img]").first
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        assert min(box["width"], box["height"]) > 100


def test_a_commands_last_line_opens_its_charts(browser, dashboard):
    with page_of(browser, dashboard.address) as page:
        page.goto(f"{dashboard.address}/{page_of_view(dashboard.experiment, view_key(dashboard.command))}")
        assert len(colours(chart(page, "latency/time_us"))) == 9
        assert "1M" in chart(page, "latency/time_us").locator(".xtick text").all_text_contents()
        assert page.get_by_text("allreduce_gpus").count() >= 1


def test_two_clicks_lead_from_the_list_of_commands_to_charts(browser, dashboard):
    with page_of(browser, dashboard.address) as page:
        page.goto(
            f"{dashboard.address}/{page_of_view(dashboard.experiment, 'symlab-commands').replace('CHART', 'TABLE')}"
        )
        page.get_by_text("cases/requested").first.wait_for()
        assert page.get_by_text("worst/ours_o").count() >= 1
        page.get_by_role("link", name="allreduce_gpus").first.click()
        with page.expect_popup() as opened:  # MLflow opens links of descriptions beside
            page.get_by_role("link", name="charts", exact=True).first.click()
        assert len(colours(chart(opened.value, "latency/time_us"))) == 9
