"""Hooks of pytest for skipped tests: the block at the end of a run, and --strict-skips (tests/skips.py)."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests import skips

WITHOUT = "SYMLAB_TESTS_WITHOUT"
"""Names of tools that this machine lacks for a reason that was printed: .ci/run sets it."""


class Skipping:
    """Counts reasons; the process that prints gets the reports of all workers."""

    def __init__(self, is_strict: bool) -> None:
        self.is_strict = is_strict
        self.reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
            self.reasons[skips.reason_of(report.longrepr[2])] += 1

    @property
    def complaints(self) -> list[str]:
        if not self.is_strict:
            return []
        return skips.complaints(self.reasons, os.environ.get(WITHOUT, "").split())

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.complaints and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.reasons:
            terminalreporter.section(f"{self.reasons.total()} tests were skipped")
            terminalreporter.write("".join(f"{line}\n" for line in skips.block(self.reasons)))
        for line in self.complaints:
            terminalreporter.write(f"--strict-skips: {line}\n", red=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--strict-skips", action="store_true", help="Fail if a test is skipped for an unnamed reason.")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skipping(config.getoption("--strict-skips")), "symlab-skipping")
