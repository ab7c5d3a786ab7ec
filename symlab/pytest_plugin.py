"""The plugin of pytest: a world of virtual GPUs for each test that asks for one, under as many orders as are wanted.

Its worlds look for races, and a test in which one is found fails, also if its results are right.

pytest loads it at its start, so it imports nothing: a world is imported with the first test that opens one.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from symlab.rooms import has

if TYPE_CHECKING:
    from cases.finding import Finding
    from symlab.worlds import World

SEED = "symlab_seed"
RACES = "symlab_races"
SHOWN = 10
"""Maximum number of findings to show for a test."""


@dataclass(slots=True)
class _Checked:
    """The worlds of a test, and the pairs of instructions that are reported already."""

    worlds: list[World] = field(default_factory=list)
    reported: set[tuple[object, ...]] = field(default_factory=set)

    def take(self, *, failing: bool) -> list[Finding]:
        """Return the findings that fail a test, or the others, and count them as reported."""
        found: dict[tuple[object, ...], Finding] = {}
        for world in self.worlds:
            for one in world.findings(of_all_runs=True) or ():
                if one.fails == failing and one.pair not in self.reported:
                    found.setdefault(one.pair, one)
        self.reported.update(found)
        return list(found.values())


CHECKED = pytest.StashKey[_Checked]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("symlab", "virtual GPUs (symlab)")
    group.addoption(
        "--symlab-seeds",
        type=int,
        metavar="N",
        help="Run each test that uses symlab_world N times, with threads in the random orders of seeds 0 to N - 1. "
        "Default: once, in a fair order.",
    )
    group.addoption(
        "--symlab-seed", type=int, metavar="SEED", help="Run them once, in the order of this seed: repeats a failure."
    )
    group.addoption(
        "--symlab-no-races",
        action="store_true",
        help="Look for no races. Default: a test fails if accesses of its symlab_world are not ordered, or lack a "
        "proxy fence.",
    )
    parser.addini(RACES, "Whether worlds of symlab_world look for races.", type="bool", default=True)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that are not possible before any test is collected."""
    _seeds(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test of each seed."""
    if SEED in metafunc.fixturenames and (seeds := _seeds(metafunc.config)):
        metafunc.parametrize(SEED, seeds, ids=[f"seed{seed}" for seed in seeds])


def _seeds(config: pytest.Config) -> list[int]:
    """The seeds that are asked for; none: one run in a fair order."""
    count, alone = config.getoption("--symlab-seeds"), config.getoption("--symlab-seed")
    if count is not None and alone is not None:
        raise pytest.UsageError("--symlab-seeds and --symlab-seed exclude each other, give one of them")
    if count is not None and count < 1:
        raise pytest.UsageError(f"--symlab-seeds is {count}, give 1 or more")
    if alone is not None and alone < 0:
        raise pytest.UsageError(f"--symlab-seed is {alone}, give 0 or more")
    return [alone] if alone is not None else list(range(count or 0))


@pytest.fixture
def symlab_seed() -> int | None:
    """The seed of the order that threads run in; None: a fair order."""
    return None


@pytest.fixture
def symlab_world(request: pytest.FixtureRequest, symlab_seed: int | None) -> Iterator[Callable[..., World]]:
    """Opens worlds of virtual GPUs: symlab_world(ranks=4), with the arguments of symlab.world. The test's end closes
    them. Order and seed are those of the command line (--symlab-seeds), unless the test gives a schedule. Simulated
    worlds look for races (--symlab-no-races), unless the test gives races=False."""
    checked = request.node.stash[CHECKED] = _Checked()
    with contextlib.ExitStack() as opened:

        def open_world(ranks: int = 2, **how: Any) -> World:
            from symlab.worlds import world

            order = {} if symlab_seed is None else {"schedule": "random", "seed": symlab_seed}
            races = {"races": True} if _looks_for_races(request.config, how) else {}
            one = world(ranks, **{**order, **races, **how})
            checked.worlds.append(one)
            return opened.enter_context(one)

        yield open_world
    if found := checked.take(failing=True):  # while other fixtures were torn down
        pytest.fail(_said(found), pytrace=False)


def _looks_for_races(config: pytest.Config, how: Mapping[str, Any]) -> bool:
    """Whether a world looks for races if the test does not say. GPUs do not show the order of their accesses."""
    wanted = bool(config.getini(RACES)) and not config.getoption("--symlab-no-races")
    return wanted and how.get("fabric", "simulator") == "simulator" and has("check.races")


def _said(found: Sequence[Finding]) -> str:
    """Findings as lines."""
    lines = [one.sentence() for one in found[:SHOWN]]
    return "\n".join(lines + ([f"and {len(found) - SHOWN} more"] if len(found) > SHOWN else []))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that passed if a race was found in any run of its worlds."""
    yield
    checked = item.stash.get(CHECKED, None)
    if checked is not None and (found := checked.take(failing=True)):
        pytest.fail(_said(found), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Name the seed of a test that failed, and the command that repeats it, and what the race checker found beside the
    failure. Leave out the cause of a failed world: its message says it."""
    with _in_short(call.excinfo):
        report = yield
    checked = item.stash.get(CHECKED, None)
    if checked is not None and report.when == "call":
        has_failed = call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception)
        beside = checked.take(failing=True) if has_failed else []
        if found := beside + checked.take(failing=False):
            report.sections.append(("symlab races", _said(found)))
    specification = getattr(item, "callspec", None)
    if specification is None or SEED not in specification.params:
        return report
    seed = specification.params[SEED]
    if report.failed:
        command = _repeating(item.nodeid, seed)
        report.sections.append(("symlab", f"threads ran in the random order of seed {seed}; repeat it with: {command}"))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that no races were looked for where nothing can."""
    if not has("check.races"):
        terminalreporter.write_line("symlab: no races were looked for: symlab/checks is not installed")


def _repeating(test: str, seed: int) -> str:
    """The command that runs a failed test again. pytest names the test with its seed."""
    return f"pytest {shlex.quote(test)} --symlab-seed {seed}"


@contextlib.contextmanager
def _in_short(failure: pytest.ExceptionInfo[BaseException] | None) -> Iterator[None]:
    """Within, a WorldFailure has no cause."""
    known = getattr(sys.modules.get("runner.world.world"), "WorldFailure", None)
    if failure is None or known is None or not isinstance(failure.value, known):
        yield
        return
    value, cause = failure.value, failure.value.__cause__
    value.__cause__ = None
    try:
        yield
    finally:
        value.__cause__ = cause
