"""A plugin of pytest that notes which tests were collected and which passed, for `python -m tests.golden`."""

import os
from pathlib import Path

import pytest

from tests.golden import WRITE_TO


def _note(name, tests):
    with Path(os.environ[WRITE_TO], name).open("a", encoding="utf-8") as file:
        file.write("".join(f"{one}\n" for one in tests))


@pytest.hookimpl(tryfirst=True)  # before some are deselected
def pytest_collection_modifyitems(items):
    _note("collected", [item.nodeid for item in items])


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed and "PYTEST_XDIST_WORKER" not in os.environ:
        _note("ran", [report.nodeid])
