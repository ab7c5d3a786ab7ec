"""The matrix in parts: a run that is limited or killed loses a row at most, and the next one does what is missing."""

import json

import pytest

from kernels import catalogue
from tests.matrix import gpus, results, running
from tests.matrix.__main__ import UNFINISHED, main
from tests.matrix.cells import all_rows, case_of
from tests.matrix.results import Outcome, digests_of, read
from tests.patience import NEVER_S

LINE = ["--few", "--kernel", "barrier/peers", "--kernel", "send_recv/push", "--world-size", "2", "--jobs", "1"]
"""Few rows that take the simulator little, refused ones among them."""


@pytest.fixture
def ran(monkeypatch):
    """The ids of the rows that were run and not refused, in their order; a row has digest "1" and takes no time."""
    seen = []

    def run(row, case, *rest):
        seen.append(case.id)
        return Outcome(row, case.id, "PASSED", "", "1")

    monkeypatch.setattr(running, "_run", run)
    monkeypatch.setattr(running.SimulatedWorlds, "__call__", lambda *given: None)
    return seen


def rows_of(*names, few=True):
    return all_rows(tuple(catalogue.find(name) for name in names), (2,), few)


def ids(rows):
    return [case_of(row).id for row in rows]


def test_a_run_goes_on_with_what_is_missing_and_then_with_what_did_not_pass(tmp_path, ran, monkeypatch):
    file, every = tmp_path / "all.jsonl", running._run

    def ends_at_the_fifth(*given):
        if len(ran) == 4:
            raise KeyboardInterrupt
        return every(*given)

    def fails_once(row, case, *rest):
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


def test_results_of_other_sources_are_missing(tmp_path, ran, monkeypatch):
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


def test_the_simulators_results_depend_on_the_simulator_and_those_of_gpus_do_not(monkeypatch):
    def sources(changed):
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


def test_time_that_is_over_ends_a_task_between_rows(tmp_path, monkeypatch, ran, capsys):
    """The third row sees the limit come: it is one of a task that has more."""
    file, every = tmp_path / "short.jsonl", running._run
    clock = [100.0]
    monkeypatch.setattr(running.time, "monotonic", lambda: clock[0])

    def takes(*given):
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


def test_groups_for_gpus_are_all_rows_of_small_worlds_first():
    rows = all_rows((catalogue.find("send_recv/push"),), (8, 4), few=True)
    groups = gpus.groups_of(rows)
    assert sorted(ids([row for group in groups for row in group])) == sorted(ids(rows))
    sizes = [group[0].world_size for group in groups]
    assert sizes == sorted(sizes)
    assert all(len({(row.name, row.dtype, row.world_size) for row in group}) == 1 for group in groups)


def test_differences_are_listed_bit_by_bit(tmp_path, capsys):
    def kept(name, **digests):
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
def test_a_command_of_two_processes_ends_in_time_and_the_next_ones_finish(tmp_path):
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
