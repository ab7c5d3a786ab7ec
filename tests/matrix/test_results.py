"""The matrix in parts: a run that is limited or killed loses a row at most, and the next one does what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tests.matrix.__main__ as matrix
from cases.case import Case
from kernels import catalogue
from runner.world.world import WorldFailure
from tests.matrix import gpus, results, running
from tests.matrix.__main__ import UNFINISHED, main
from tests.matrix.cells import Row, all_rows, case_of
from tests.matrix.results import Outcome, digests_of, read
from tests.matrix.running import Limit
from tests.patience import NEVER_S

LINE = ["--few", "--kernel", "barrier/peers", "--kernel", "send_recv/push", "--world-size", "2", "--jobs", "1"]
"""Few rows that take the simulator little, refused ones among them."""


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the rows that were run and not refused, in their order; a row has digest "1" and takes no time."""
    seen: list[str] = []

    def run(row: Row, case: Any, *rest: Any) -> Outcome:
        seen.append(case.id)
        return Outcome(row, case.id, "PASSED", "", "1")

    monkeypatch.setattr(running, "_run", run)
    monkeypatch.setattr(running.SimulatedWorlds, "__call__", lambda *given: None)
    return seen


def rows_of(*names: str, few: bool = True) -> list[Row]:
    return all_rows(tuple(catalogue.find(name) for name in names), (2,), few)


def ids(rows: list[Row]) -> list[str]:
    return [case_of(row).id for row in rows]


def test_a_run_goes_on_with_what_is_missing_and_then_with_what_did_not_pass(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, every = tmp_path / "all.jsonl", running._run

    def ends_at_the_fifth(*given: Any) -> Outcome:
        if len(ran) == 4:
            raise KeyboardInterrupt
        return every(*given)

    def fails_once(row: Row, case: Any, *rest: Any) -> Outcome:
        if row.dtype == "int32":
            raise RuntimeError("not today")
        return every(row, case, *rest)

    monkeypatch.setattr(running, "_run", ends_at_the_fifth)
    assert main([*LINE, "--results", str(file)]) == 130
    first = ran.copy()
    assert sorted(one for one, kept in read(file)[1].items() if kept["status"] == "PASSED") == sorted(first)
    monkeypatch.setattr(running, "_run", fails_once)
    assert main([*LINE, "--results", str(file)]) == 1
    assert len(first) == 4
    assert sorted(ran) == sorted(set(ran)), "no row ran twice"
    ran.clear()
    monkeypatch.setattr(running, "_run", every)
    assert main([*LINE, "--results", str(file)]) == 0
    assert len(ran) == 3
    assert all("-int32-" in one for one in ran)
    assert set(digests_of(file).values()) == {"1", "REFUSED"}
    ran.clear()
    assert main([*LINE, "--results", str(file)]) == 0
    assert ran == []


def test_results_of_other_sources_are_missing(tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    line = [*LINE, "--results", str(tmp_path / "old.jsonl")]
    assert main(line) == 0
    known = results.sources_of
    monkeypatch.setattr(
        results, "sources_of", lambda name, machine: known(name, machine) + "x" * name.startswith("barrier")
    )
    ran.clear()
    assert main(line) == 0
    assert ran
    assert all(one.startswith("barrier-") for one in ran)


def test_the_simulators_results_depend_on_the_simulator_and_those_of_gpus_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sources(changed: str) -> tuple[str, str]:
        results.sources_of.cache_clear()
        packages = ("cases", "memory", "runner", "simulator")
        monkeypatch.setattr(results, "source_digests", lambda root: {name: str(name == changed) for name in packages})
        return results.sources_of("barrier/peers", "simulator"), results.sources_of("barrier/peers", "8 x GPU")

    try:
        before, other, runner = sources(""), sources("simulator"), sources("runner")
    finally:
        results.sources_of.cache_clear()
    assert before[0] != other[0]
    assert before[1] == other[1]
    assert before[0] != runner[0]
    assert before[1] != runner[1]


def test_results_of_two_machines_have_a_file_each(
    tmp_path: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [*LINE, "--results", str(tmp_path / "here.jsonl")]
    assert main(line) == 0
    monkeypatch.setattr(matrix, "_machine", lambda options: "8 x GPU")
    assert main(line) == 2
    assert "here.jsonl has results of simulator, and this is 8 x GPU (--results)" in capsys.readouterr().err


def test_time_that_is_over_ends_a_task_between_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The third row sees the limit come: it is one of a task that has more."""
    file, every = tmp_path / "short.jsonl", running._run
    clock = [100.0]
    monkeypatch.setattr(running.time, "monotonic", lambda: clock[0])

    def takes(*given: Any) -> Outcome:
        clock[0] += 10
        return every(*given)

    monkeypatch.setattr(running, "_run", takes)
    line = ["--few", "--kernel", "send_recv/push", "--world-size", "2", "--jobs", "1", "--results", str(file)]
    assert main([*line, "--seconds", "45"]) == UNFINISHED
    assert len(ran) == 5
    said = capsys.readouterr().out
    assert f"{len(rows_of('send_recv/push')) - 5} of 33 rows were not run, the time was over (--seconds)" in said
    assert sorted(read(file)[1]) == sorted(ran)
    assert main(line) == 0
    assert sorted(ran) == sorted(set(ids(rows_of("send_recv/push"))))


def test_a_row_gets_the_time_that_is_left_and_one_that_the_limit_ends_is_not_run(
    monkeypatch: pytest.MonkeyPatch, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without a row is no progress: exit code 3 would have a loop go on for ever."""
    clock = [100.0]
    monkeypatch.setattr(running.time, "monotonic", lambda: clock[0])

    def never_ends(*given: Any) -> Outcome:
        clock[0] += 100
        raise WorldFailure("TIMEOUT", None, "it did not end")

    monkeypatch.setattr(running, "_run", never_ends)
    line = ["--few", "--kernel", "send_recv/push", "--world-size", "2", "--jobs", "1"]
    assert main([*line, "--seconds", "45"]) == 1
    assert "no row ended in this run: give it more time (--seconds)" in capsys.readouterr().out
    given = []

    class Slow:
        def run(self, program: Any, plan: Any, deadline_s: float) -> Any:
            given.append(deadline_s)
            raise WorldFailure("TIMEOUT", None, "it did not end")

    monkeypatch.undo()
    monkeypatch.setattr(running, "executable", lambda *rest: None)
    monkeypatch.setattr(running, "Plan", lambda *rest, launches: None)
    world: Any = Slow()
    ended = list(running.run_rows(rows_of("send_recv/push")[:1], lambda *rest: world, Path()))
    assert [one.status for one in ended] == ["FAILED"]
    assert given == [running.DEADLINE_S]


def test_groups_for_gpus_are_all_rows_of_small_worlds_first() -> None:
    rows = all_rows((catalogue.find("send_recv/push"),), (8, 4), few=True)
    groups = gpus.groups_of(rows)
    assert sorted(ids([row for group in groups for row in group])) == sorted(ids(rows))
    sizes = [group[0].world_size for group in groups]
    assert sizes == sorted(sizes)
    assert all(len({(row.name, row.dtype, row.world_size) for row in group}) == 1 for group in groups)


class Compiled:
    """Stands for the compiler: after each of these waits, whether a group's kernels are there."""

    def __init__(self, *ready: bool) -> None:
        self.ready = list(ready)
        self.waits: list[float] = []

    def wait(self, cases: list[Case], arch: str, timeout_s: float) -> bool:
        assert (cases, arch) == ([], "sm_90a")
        self.waits.append(timeout_s)
        return self.ready.pop(0)


def test_a_compiler_is_waited_for_until_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([5.0, 5.0, 0.3, 0.3, 0.0])
    monkeypatch.setattr(Limit, "left_s", lambda self: next(left))
    compiled: Any = Compiled(True, False)
    assert gpus._is_compiled(compiled, [], Limit())
    assert not gpus._is_compiled(compiled, [], Limit())
    assert compiled.waits == [gpus.LOOK_S, 0.3]


def test_differences_are_listed_bit_by_bit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def kept(name: str, **digests: str) -> str:
        lines = [{"id": id, "status": "PASSED" if one else "REFUSED", "digest": one} for id, one in digests.items()]
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in [{results.HEAD: name}, *lines]) + '{"id": "half')
        return str(path)

    simulator, gpu = kept("simulator", a="1", b="2", c="3", d="4"), kept("gpu", a="1", b="2")
    assert main(["--compare", simulator, gpu]) == 0
    assert capsys.readouterr().out == f"{gpu}: 2 cases, 0 differ from {simulator}, which has 2 more\n"
    other = kept("other", a="1", b="9", c="", e="5")
    assert main(["--compare", simulator, other]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"b: 2 in {simulator}, 9 in {other}",
        f"c: 3 in {simulator}, REFUSED in {other}",
        f"e: missing in {simulator}, 5 in {other}",
        f"{other}: 4 cases, 3 differ from {simulator}, which has 1 more",
    ]
    assert main(["--compare", simulator, kept("nothing")]) == 1, "they have nothing in common"


@pytest.mark.slow
def test_a_command_of_two_processes_ends_in_time_and_the_next_ones_finish(tmp_path: Path) -> None:
    """The bits of two runs are those of one."""
    line = ["--few", "--kernel", "send_recv/push", "--world-size", "2", "--jobs", "2"]
    file, whole = tmp_path / "parts.jsonl", tmp_path / "whole.jsonl"
    code, seconds = UNFINISHED, 5
    while code and seconds < NEVER_S:
        code = main([*line, "--results", str(file), "--seconds", str(seconds)])
        seconds *= 2  # a busy machine may need most of the first ones to start
    assert code == 0
    assert main([*line, "--results", str(whole)]) == 0
    assert main(["--compare", str(whole), str(file)]) == 0
