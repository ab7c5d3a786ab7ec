"""Hooks of pytest for --plan FILE: run the tests of the plan's rows alone, and record each row once all of it passed.

tests/selection.py writes plans. A row with a test that was skipped for want of a tool has not passed.
"""

import json
from collections import defaultdict
from pathlib import Path

from tests import skips
from tests.selection import record


class Recorder:
    """Outcomes by row, in the process that gets the reports of all workers."""

    def __init__(self, plan):
        self.place = Path(plan["place"])
        self.digests = {name: row["digests"] for name, row in plan["rows"].items()}
        self.row_of = {test: name for name, row in plan["rows"].items() for test in row["tests"]}
        self.open = {name: set(row["tests"]) for name, row in plan["rows"].items()}
        self.seconds = defaultdict(float)
        self.failed = set()

    def pytest_runtest_logreport(self, report):
        name = self.row_of.get(report.nodeid)
        if name is None:
            return
        self.seconds[name] += report.duration
        lacks = report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail")
        if report.failed or (lacks and skips.tool_of(skips.reason_of(report.longrepr[2])) is not None):
            self.failed.add(name)
        if report.when == "teardown":
            self.open[name].discard(report.nodeid)
            if not self.open[name] and name not in self.failed:
                record(self.place, {name: [*self.digests[name], round(self.seconds[name], 1)]})


def plan_of(config):
    """The plan that --plan names; None without."""
    path = config.getoption("--plan")
    return json.loads(Path(path).read_text(encoding="utf-8")) if path else None


def keep(config, items):
    """Deselect what is not in the plan."""
    plan = plan_of(config)
    if plan is None:
        return
    wanted = {test for row in plan["rows"].values() for test in row["tests"]}
    others = [item for item in items if item.nodeid not in wanted]
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.nodeid in wanted]


def pytest_configure(config):
    plan = plan_of(config)
    if plan is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(plan), "symlab-recorder")
