"""Why tests are skipped: the tools that they need, and which command brings each. All else that skips must be listed.
Hooks of pytest, below, count them.

At the end of a run the skipped tests are counted in one block, by reason. With --strict-skips (CI) the run fails if a
test was skipped for a tool that SYMLAB_TESTS_WITHOUT does not name, or for a reason that is not listed here.
"""

import os
import re
from collections import Counter
from dataclasses import dataclass

import pytest


@dataclass(frozen=True, slots=True)
class Tool:
    """What tests need and a machine may lack: its name, what their reasons say, and the command that brings it."""

    name: str
    pattern: str
    command: str


TOOLS = (
    Tool("root", r"mounted by root|needs root", "run the tests as root"),
    Tool("foreign", r"make foreign|--cutlass-checkout", "make foreign"),
    Tool("chromium", r"^no Chromium here", "apt-get install chromium"),
    Tool("g++", r"g\+\+|C compiler", "apt-get install g++"),
    Tool("slurm", r"slurmctld|slurmd", "apt-get install slurmctld slurmd munge slurm-client, as root"),
    Tool("ssh", r"ssh-(keygen|agent|add)", "apt-get install openssh-client"),
    Tool("pdftotext", r"pdftotext", "apt-get install poppler-utils"),
    Tool(
        "packages",
        r"ptxas|nvcc|playwright is not|setuptools is not|symlab is not|hydra_plugins|cuda\.bindings",
        "make test",
    ),
    Tool("zsh", r"^\S+ is not installed here", "apt-get install zsh"),
    Tool("git", r"no git|git has (no|only)|git does not have", "git fetch --unshallow, in a clone"),
    Tool("gpus", r"^needs \d+ GPUs|GPU|multicast", "run them on GPUs (pytest -m gpu)"),
)
"""The first whose pattern a reason has."""

BY_DESIGN = (
    r"^symlab/\w+ is not installed",
    r"^the model of the switch is nothing to a peer-to-peer kernel",
    r"^this machine has an NVIDIA driver",
    r"^it has no case that the model is scored by",
    r"^one core(:| compiles)",
    r"^it reads no data behind its signal",
    r"^CuTe DSL \S+ does not compile",
    r"^a world of processes is ended by ending them",
    r"^(the|this) simulator has no",
    r"^glibc's printf is the oracle",
    r"^its file system takes UTF-8 only",
    r"^the system does not say when processes began|^processes are looked up in /proc",
    r"^the system ends it on Linux only",
)
"""Reasons that no tool would change on this machine."""


def reason_of(text):
    """The reason of a skipped report, without pytest's word before it."""
    return text.removeprefix("Skipped: ").strip()


def tool_of(reason):
    """The tool that a reason is about; None if it is none, or by design."""
    if any(re.search(pattern, reason) for pattern in BY_DESIGN):
        return None
    return next((tool for tool in TOOLS if re.search(tool.pattern, reason)), None)


def is_known(reason):
    """Whether a reason is listed: of a tool, or by design."""
    return tool_of(reason) is not None or any(re.search(pattern, reason) for pattern in BY_DESIGN)


def block(reasons):
    """Lines that count skipped tests, by the command that brings what they lack, then those that lack nothing."""
    by_command = Counter()
    for reason, number in reasons.items():
        tool = tool_of(reason)
        by_command[f"for want of {tool.name}: {tool.command}" if tool is not None else reason] += number
    yield from (f"{number:>5} {what}" for what, number in sorted(by_command.items(), key=lambda one: -one[1]))


def complaints(reasons, without):
    """What makes a strict run fail: tools that are missing and not named, and reasons that are not listed."""
    found = []
    allowed = {*without, "gpus"} | ({"root"} if os.geteuid() else set())
    for reason in sorted(set(reasons)):
        tool = tool_of(reason)
        if not is_known(reason):
            found.append(f"unknown reason, list it in tests/skips.py: {reason}")
        elif tool is not None and tool.name not in allowed:
            found.append(f"{tool.name} is missing ({tool.command}): {reason}")
    return found


WITHOUT = "SYMLAB_TESTS_WITHOUT"
"""Names of tools that this machine lacks for a reason that was printed: .ci/run sets it."""


class Skipping:
    """Counts reasons; the process that prints gets the reports of all workers."""

    def __init__(self, is_strict):
        self.is_strict = is_strict
        self.reasons = Counter()

    def pytest_runtest_logreport(self, report):
        self._count(report)

    def pytest_collectreport(self, report):
        self._count(report)

    def _count(self, report):
        if report.skipped and isinstance(report.longrepr, tuple) and not hasattr(report, "wasxfail"):
            self.reasons[reason_of(report.longrepr[2])] += 1

    @property
    def complaints(self):
        if not self.is_strict:
            return []
        return complaints(self.reasons, os.environ.get(WITHOUT, "").split())

    def pytest_sessionfinish(self, session):
        if self.complaints and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if self.reasons:
            terminalreporter.section(f"{self.reasons.total()} tests were skipped")
            terminalreporter.write("".join(f"{line}\n" for line in block(self.reasons)))
        for line in self.complaints:
            terminalreporter.write(f"--strict-skips: {line}\n", red=True)


def pytest_addoption(parser):
    parser.addoption("--strict-skips", action="store_true", help="Fail if a test is skipped for an unnamed reason.")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Skipping(config.getoption("--strict-skips")), "symlab-skipping")
