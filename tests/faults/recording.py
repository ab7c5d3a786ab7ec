"""A plugin of pytest that records which test runs which lines of product code: `-p tests.faults.recording
--record-to=FOLDER` (with "=": pytest takes a folder of its own for its root otherwise).

Each process, a worker of xdist as well as a process that a test starts, writes a file of its own, so that none waits
for another; tests/faults/reached.py puts them together. A context is a test function, without its case: a test's
fixtures belong to it, which coverage's own dynamic_context=test_function leaves out.
"""

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGES = ("symlab", "runner", "kernels", "memory", "reports", "simulator", "cases")
"""The packages that faults are made in."""

TEST = "SYMLAB_RECORDED_TEST"
"""The variable that tells processes which test started them."""

_SETTINGS = f"""[run]
parallel = True
data_file = {{folder}}/started
context = ${{{{{TEST}-}}}}
include = {{packages}}
core = ctrace
"""


def function_of(test):
    """Return the node id of a test without its case."""
    return test.partition("[")[0]


def pytest_addoption(parser):
    parser.addoption("--record-to", default="", help="the folder that files of recorded lines are written to")


def pytest_configure(config):
    folder = config.getoption("--record-to")
    is_controller = bool(getattr(config.option, "numprocesses", None)) and not hasattr(config, "workerinput")
    if folder and not is_controller:
        config.pluginmanager.register(_Recording(Path(folder).resolve(), config.rootpath), "recording")


class _Recording:
    """One process' record."""

    def __init__(self, folder, root):
        import coverage

        folder.mkdir(parents=True, exist_ok=True)
        self.place = folder / f"recorded.{os.getpid()}"
        self.root = root
        self.seconds = defaultdict(float)
        packages = [f"{root}/{name}/*" for name in PACKAGES]
        settings = folder / "settings.ini"
        settings.write_text(_SETTINGS.format(folder=folder, packages="\n    ".join(["", *packages])), encoding="utf-8")
        os.environ["COVERAGE_CORE"] = "ctrace"
        self.coverage = coverage.Coverage(data_file=str(self.place), include=packages, config_file=False)
        self.coverage.start()
        os.environ["COVERAGE_PROCESS_START"] = str(settings)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        test = function_of(item.nodeid)
        began_s = time.monotonic()
        os.environ[TEST] = test
        self.coverage.switch_context(test)
        try:
            return (yield)
        finally:
            self.coverage.switch_context("")
            self.seconds[test] += time.monotonic() - began_s

    def pytest_unconfigure(self):
        self.coverage.stop()
        self.coverage.save()
        about = {"root": str(self.root), "python": sys.version, "seconds": self.seconds}
        self.place.with_suffix(f"{self.place.suffix}.json").write_text(json.dumps(about), encoding="utf-8")
