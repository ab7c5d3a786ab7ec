"""A real `mlflow server` on a database, and its pages in Chromium: for tests, and for the README's screenshots."""

import contextlib
import os
import signal
import socket
import subprocess
import urllib.request

from tests.patience import PATIENCE_S, until
from tests.processes import begun

"""How long the server may take until it answers: seconds on a quiet machine."""

WAIT_MS = 60_000
"""How long a page may take to show what is waited for."""

_NO_ASSISTANT = (
    "localStorage.setItem('mlflow.assistant.panelOpen_v1', 'false');"
    "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true');"
)
"""The panel for questions to a language model would take a third of the page."""


@contextlib.contextmanager
def serving(database, port=0):
    """An MLflow server on an sqlite database; gives its address. It is gone afterwards, with all that it started.
    port: 0 for a free one."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = port or free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    log = database.with_name("server.log")
    with log.open("w", encoding="utf-8") as output:
        store = ("--workers", "1", "--backend-store-uri", f"sqlite:///{database}")
        words = ("-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), *store)
        settings = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        alone = {"cwd": database.parent, "stdin": subprocess.DEVNULL, "stdout": output, "start_new_session": True}
        server = begun(*words, env=settings, **alone)
    try:
        _wait(server, address, log)
        yield address
    finally:
        for sent in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, sent)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(PATIENCE_S)


def _wait(server, address, log):
    def answers_or_is_gone():
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=5):
            return True
        return server.poll() is not None

    try:
        until(answers_or_is_gone, "the server's start")
        assert server.poll() is None
    except AssertionError:
        raise RuntimeError(f"mlflow server did not start: {log.read_text(encoding='utf-8')[-2000:]}") from None


@contextlib.contextmanager
def page_of(browser, address, width=1500, height=1000):
    """A page (playwright.sync_api.Page) that may ask nobody but the server."""
    context = browser.new_context(viewport={"width": width, "height": height}, device_scale_factor=1)
    try:
        context.add_init_script(_NO_ASSISTANT)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        page.route(lambda url: not url.startswith((address, "data:", "blob:", "about:")), lambda route: route.abort())
        yield page
    finally:
        context.close()


def open_view(page, address, experiment, view):
    """Open an experiment, choose one of its saved views, and go to the charts: as a user does, by hand."""
    page.goto(f"{address}/#/experiments/{experiment}/runs?workflowType=machine_learning")
    page.get_by_role("button", name="Views").click()
    page.get_by_text(view, exact=True).click()
    page.wait_for_url(lambda url: "orderByKey=tags" in url)  # the view's order: it has been applied
    show_charts(page)


def show_charts(page):
    """From the list of runs to the charts."""
    page.locator("label", has=page.locator("input[name=runs-view-mode][value=CHART]")).click()


def chart(page, metric):
    """The chart of a metric, once there is a line in it."""
    card = page.locator("[data-testid='experiment-view-compare-runs-card']").filter(has_text=metric).first
    card.scroll_into_view_if_needed()  # MLflow draws what can be seen
    card.locator(".scatterlayer .trace path.js-line").first.wait_for(state="attached")
    return card


def colours(card):
    """The colours of a chart's lines, as CSS has them: rgb(0, 114, 178)."""
    lines = card.locator(".scatterlayer path.js-line")
    return set(lines.evaluate_all("lines => lines.map(line => line.style.stroke)"))


def open_report(page, address, experiment, run):
    """Open a command's run, its artifacts, and the report among them. Gives the frame that the report is shown in."""
    page.goto(f"{address}/#/experiments/{experiment}/runs/{run}")
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("report.html", exact=True).first.click()
    return page.frame_locator("iframe")
