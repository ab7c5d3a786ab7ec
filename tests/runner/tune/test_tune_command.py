"""`symlab tune` as a command: a table from a search in the simulator, interrupts, bad candidates, wrong requests.

Compiled kernels are few and small: one algorithm, two sizes. Times are those of a bench with a script.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cases.case import Case
from kernels.catalogue import tuning_of
from kernels.tuned.table import INSTRUCTIONS, read
from kernels.tuned_name import has_tuning, step_of
from reports.record.bundle import read as read_records
from runner.__main__ import main as run_main
from runner.tune.command import Options, Seams, tune
from runner.tune.search import BenchFailure, Measured
from symlab.command import main
from tests.golden import same_text

Patch = pytest.MonkeyPatch
Said = pytest.CaptureFixture[str]

ASKED = ("op=all_reduce", "algorithms=[one_shot]", "world_size=2", "fabric=simulator", "dtype=float32")


class Scripted:
    """A bench without a world: the nearer to 128 threads and to 2 blocks, the quicker. broken names hang."""

    is_exact = True

    def __init__(self, broken: frozenset[str] = frozenset(), stop_after: int | None = None) -> None:
        self.broken = broken
        self.stop_after = stop_after
        self.measured_names: list[str] = []

    def groups(self, cases: Sequence[Case], beside: Case | None) -> list[list[Case]]:
        return [[case] for case in cases]

    def measured(self, cases: Sequence[Case], samples: int) -> list[Measured]:
        if self.stop_after is not None and len(self.measured_names) >= self.stop_after:
            raise KeyboardInterrupt
        self.measured_names += [case.algorithm for case in cases]
        if self.broken & {case.algorithm for case in cases}:
            raise BenchFailure("rank 1: a wait gave up")
        found = []
        for case in cases:
            name = case.algorithm
            step = step_of(name) if has_tuning(name) else tuning_of(case.name).step(case)
            found.append(Measured((5.0 + abs(step.threads - 128) / 32 + abs(step.blocks - 2),)))
        return found


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: Patch, compile_cache: Path) -> Callable[..., int]:
    """What runs symlab tune in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*more: str, bench: Scripted | None = None, **options: Any) -> int:
        overrides = (*ASKED, "sizes=[1K,4K]", f"cache_dir={compile_cache}", "launches=1", *more)
        seams = Seams(bench=None if bench is None else lambda worlds, request, compiler: bench)
        fields = {"output": tmp_path / "t.json", "simulated": True} | options
        return tune(Options(overrides, **fields), overrides, seams)

    return run


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


@pytest.mark.slow
def test_a_search_writes_a_table_that_best_reads(
    tuned: Callable[..., int], tmp_path: Path, compile_cache: Path, capsys: Said
) -> None:
    bench = Scripted()
    assert tuned(bench=bench) == 0
    said = capsys.readouterr().out
    table = read(tmp_path / "t.json")
    assert (table.gpu, table.unit) == ("simulated", INSTRUCTIONS)
    assert [(one.size_bytes, one.ranks, one.searched.failed) for one in table.entries] == [(1024, 2, 0), (4096, 2, 0)]
    assert all(2 <= len(one.records) <= 5 and one.runner_up is not None for one in table.entries)
    assert not (tmp_path / "t.json.search").exists()
    assert table.digest in said
    # The figures are those of the records, which are ordinary ones.
    (folder,) = (tmp_path / "records").iterdir()
    counts = {(one.case.algorithm, one.case.size_bytes): one.counters["instructions"] for one in read_records([folder])}
    for one in table.entries:
        assert one.choice.value == counts[one.choice.name, one.size_bytes]
        assert one.choice.value == min(count for (_, size), count in counts.items() if size == one.size_bytes)
    digests = json.dumps((folder / "manifest.sha256").read_text())
    assert all(digest.removeprefix("sha256:") in digests for one in table.entries for digest in one.records)
    first = table.entries[1].from_bytes
    # best takes it: at a size between, and at another one as the nearest entry.
    line = [*ASKED, "sizes=[1024,4000,32K]", "algorithms=[best,one_shot]", "tuned=t.json", "track=none", "launches=1"]
    assert run_main([*line, f"cache_dir={compile_cache}", "records=again"]) == 0
    said = capsys.readouterr().out
    assert "best: t.json (simulated, simulated)" in said
    assert f"best: the nearest entry, searched for {first} to 8192 bytes, not 32768" in said
    found = {one.case.size_bytes: one for one in read_records([tmp_path / "again"]) if "@" in one.case.algorithm}
    assert [found[size].case.algorithm for size in (1024, 4000)] == [one.choice.name for one in table.entries]
    for size, nearest in ((1024, ""), (4000, ""), (32 << 10, f"searched for {first} to 8192 bytes, not 32768")):
        given = found[size].request.kernel
        assert given is not None
        assert given["chosen"]["nearest"] == nearest
        assert given["chosen"]["digest"] == table.digest
        assert given["tuning"]["threads"] == step_of(found[size].case.algorithm).threads
        assert given["tuning"]["threads"] == given["choices"]["threads"]


@pytest.mark.slow
def test_an_interrupted_search_goes_on(tuned: Callable[..., int], tmp_path: Path, capsys: Said) -> None:
    first = Scripted(stop_after=7)
    assert tuned(bench=first) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()
    second = Scripted()
    assert tuned(bench=second) == 0
    assert "going on with" in capsys.readouterr().out
    whole = Scripted()
    assert tuned(bench=whole, output=tmp_path / "whole.json") == 0
    assert len(first.measured_names) + len(second.measured_names) == len(whole.measured_names)
    choices = [[one.choice for one in read(tmp_path / name).entries] for name in ("t.json", "whole.json")]
    assert choices[0] == choices[1]


@pytest.mark.slow
def test_a_hanging_candidate_costs_only_itself(tuned: Callable[..., int], tmp_path: Path, capsys: Said) -> None:
    probe = Scripted()
    tuned("sizes=[4K]", bench=probe, output=tmp_path / "probe.json")
    broken = frozenset(probe.measured_names[1:3])
    assert tuned("sizes=[4K]", bench=Scripted(broken=broken)) == 0
    (one,) = read(tmp_path / "t.json").entries
    assert one.searched.failed == 2
    assert one.choice.name not in broken
    assert capsys.readouterr().err.count("a wait gave up") == 2


@pytest.mark.slow
def test_other_entries_of_a_table_stay(tuned: Callable[..., int], tmp_path: Path) -> None:
    assert tuned("sizes=[1K]", bench=Scripted()) == 0
    assert tuned("sizes=[4K]", bench=Scripted()) == 0
    assert [one.size_bytes for one in read(tmp_path / "t.json").entries] == [1024, 4096]


@pytest.mark.slow
def test_without_the_option_no_table_is_written_of_the_simulator(
    tuned: Callable[..., int], tmp_path: Path, capsys: Said
) -> None:
    assert tuned("sizes=[1K]", bench=Scripted(), simulated=False) == 0
    assert "not times; no table is written (--simulated" in capsys.readouterr().out
    assert not (tmp_path / "t.json").exists()


def test_no_time_leaves_candidates_out_and_the_table_says_so(tuned: Callable[..., int], tmp_path: Path) -> None:
    assert tuned("sizes=[4K]", bench=Scripted(), seconds=1e-9) == 0
    (one,) = read(tmp_path / "t.json").entries
    assert one.searched.timed == 1
    assert one.searched.left_out > 3


@pytest.mark.slow
def test_the_simulators_own_bench_checks_and_counts(tuned: Callable[..., int], tmp_path: Path) -> None:
    assert tuned("sizes=[256]") == 0
    (one,) = read(tmp_path / "t.json").entries
    assert one.choice.value > 1000
    assert one.searched.timed > 2


@pytest.mark.parametrize(
    "words",
    [
        ["algorithms=[oneshot]"],
        ["algorithms=[one_shot@t128b4l8]"],
        ["timing.predict=true"],
        ["op=all_to_all_v", "counts=zeros"],
        ["stress=late_rank"],
        ["check=false"],
        ["timing.mode=none"],
        ["-o", "."],
        ["-o", "none/t.json"],
        ["-o", "hostile.json"],
        ["-o", "h200.json"],
        ["--unseen", "-o", "none.json"],
        ["--regret", "records", "op=all_reduce"],
        ["--seconds", "nan"],
        ["op=all_reduces"],
        ["op=barrier", "sizes=[1K]"],
    ],
    ids=" ".join,
)
def test_a_wrong_request_is_one_line(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.kernels.tuned.test_tuned_table import TABLE

    monkeypatch.chdir(tmp_path)
    (tmp_path / "hostile.json").write_text('{"symlab_tuned": 1, "entries": [')
    (tmp_path / "h200.json").write_text(TABLE.text())
    assert main(["tune", "fabric=simulator", "sizes=[1K]", *words]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    same_text(said)
    assert not (tmp_path / "records").exists()


@pytest.mark.parametrize("line", [[], ["--simulated"], ["--seconds", "60"]], ids=" ".join)
def test_a_search_without_an_op_says_what_it_would_do_and_starts_nothing(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tune", *line]) == 2
    said = capsys.readouterr()
    same_text(said.err)
    assert (said.out, list(tmp_path.iterdir())) == ("", [])
