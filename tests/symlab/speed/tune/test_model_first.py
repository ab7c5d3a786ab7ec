"""The model asked first: what it ranks best is measured and nothing else, what it can't say is told."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cases.case import Case
from kernels.tuned_name import base_of, step_of
from runner.gpu.names import CONF
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.profiles import Found, Unprofiled
from symlab.speed.tune.command import Options, tune
from symlab.speed.tune.jobs import SIZES
from symlab.speed.tune.model_first import MEASURED, Ranking, model_for
from symlab.speed.tune.search import Measured
from symlab.speed.tuned.table import read
from tests.golden import refused, same_text
from tests.symlab.speed.tune.test_tune_on_gpus import GPU, Clocked, Finals, on_gpus, true_us

Patch = pytest.MonkeyPatch
Said = pytest.CaptureFixture[str]


@dataclass
class Invented:
    """Profiles whose predicted times grow with true_us, of all but some candidates."""

    broken: frozenset[str] = frozenset()
    unsimulated: frozenset[str] = frozenset()
    most: int = 1 << 30
    asked: list[Case] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)
    closed: bool = False

    def of(self, cases: Sequence[Case], limit_s: float = math.inf) -> Iterable[Found]:
        self.limits_s.append(limit_s)
        for case in cases[: self.most]:
            self.asked.append(case)
            if base_of(case.algorithm) in self.broken:
                yield case, Unprofiled("can't be compiled: ptxas", can_run=False)
            elif case.algorithm in self.unsimulated:
                yield case, Unprofiled("rank 1: it waits", can_run=True)
            else:
                yield case, CaseWork({}, {"hop": true_us(case.algorithm, case.size_bytes)}, ())

    def close(self) -> None:
        self.closed = True


class Counting(Clocked):
    """The bench of the other tests, that writes down what it measured."""

    def __init__(self, bad: frozenset[str] = frozenset()) -> None:
        self.names: dict[int, set[str]] = {}
        self.bad = bad

    def measured(self, cases: Sequence[Case], samples: int) -> list[Measured]:
        for case in cases:
            self.names.setdefault(case.size_bytes, set()).add(case.algorithm)
        found = super().measured(cases, samples)
        bad = [case.algorithm in self.bad for case in cases]
        return [Measured(problem="it is wrong") if is_bad else one for is_bad, one in zip(bad, found, strict=True)]


def ranked(
    tmp_path: Path,
    *more: str,
    profiles: Invented | None = None,
    bench: Counting | None = None,
    device: str = GPU,
    now: Callable[[], float] = time.monotonic,
    **options: Any,
) -> tuple[int, Counting, Invented]:
    """Run symlab tune with the model's profiles invented."""
    there, invented = bench or Counting(), profiles or Invented()
    how = {"gpu": lambda: device, "profiles": lambda cache_dir, arch, processes: invented, "now": now}
    asked, seams = on_gpus(Finals(tmp_path), *more, bench=lambda worlds, request, compiler: there, **how)
    fields: dict[str, Any] = {"output": tmp_path / "t.json", "processes": 1} | options
    return tune(Options(asked, **fields), asked, seams), there, invented


@pytest.mark.slow
def test_only_the_models_best_and_the_catalogues_own_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, bench, invented = ranked(tmp_path)
    assert code == 0
    assert invented.closed
    assert set(bench.names) == set(SIZES)
    for size in SIZES:
        every = {one.algorithm for one in invented.asked if one.size_bytes == size}
        assert len(every) >= 20
        quickest = min(true_us(name, size) for name in every)
        assert min(true_us(name, size) for name in bench.names[size]) == pytest.approx(quickest, rel=0.02), size
        own_us = {name: true_us(name, size) for name in ("two_shot", "lamport") if name in every}
        far = {name for name, us in own_us.items() if us > 4 * min(own_us.values())}
        assert not far & {base_of(name) for name in every - own_us.keys()}, "one that is far behind has no grid"
    entries = {one.size_bytes: one for one in read(tmp_path / "t.json").entries}
    for one in (entries[size] for size in SIZES):
        searched, names = one.searched, bench.names[one.size_bytes]
        assert searched.how == "model"
        assert searched.model.startswith("h200, sha256:")
        assert searched.ranked == len({case for case in invented.asked if case.size_bytes == one.size_bytes})
        own = {"two_shot", "lamport"} if one.size_bytes <= 2 << 20 else {"two_shot"}
        guesses = {guess.name: guess.us for guess in searched.predicted}
        assert len(guesses) == MEASURED
        assert names == set(guesses) | own
        assert searched.timed == len(names)
        assert list(guesses.values()) == sorted(guesses.values())
    said = capsys.readouterr().out
    assert "the model of h200 ranks the candidates; of each size the best 6 and the catalogue's own" in said
    assert f"model of h200: {len(invented.asked)} predictions in " in said
    assert " measured of " in said
    assert "model's no. 1 of" in said


def test_dependent_launches_are_searched_and_named_in_the_table(tmp_path: Path) -> None:
    code, bench, _ = ranked(tmp_path, "timing.dependent_launch=true")
    assert code == 0
    assert all(name.endswith("d") for names in bench.names.values() for name in names)
    assert all(one.choice.name.endswith("d") for one in read(tmp_path / "t.json").entries)


def test_the_exhaustive_search_measures_all(tmp_path: Path) -> None:
    code, bench, invented = ranked(tmp_path, "sizes=[16K]", exhaustive=True)
    assert code == 0
    assert invented.asked == []
    assert len(bench.names[1 << 14]) > 20
    (one,) = read(tmp_path / "t.json").entries
    assert (one.searched.how, one.searched.model, one.searched.predicted) == ("exhaustive", "", ())
    assert one.searched.found(one.choice.name) == "exhaustive"


def test_the_models_time_ends_and_that_is_said(tmp_path: Path, capsys: Said) -> None:
    invented = Invented(most=2)
    assert ranked(tmp_path, "sizes=[16K]", profiles=invented, model_seconds=3.0)[0] == 0
    (one,) = read(tmp_path / "t.json").entries
    assert invented.limits_s[0] == pytest.approx(3.0, abs=1.0)
    assert one.searched.ranked == 5, "the catalogue's two, two of the grid, and all that is beside the best two"
    assert one.searched.left_out > 20
    said = capsys.readouterr().out
    assert f"its time ended (--model-seconds, --seconds): {one.searched.left_out} not predicted" in said
    assert f"{one.searched.left_out} not tried" in said


def test_seconds_of_a_choice_are_its_share_of_the_command(tmp_path: Path) -> None:
    ticks: list[float] = []

    def now() -> float:
        ticks.append(len(ticks) * 2.0)
        return ticks[-1]

    ranked(tmp_path, "sizes=[1K,4K]", now=now)
    entries = read(tmp_path / "t.json").entries
    assert [one.searched.seconds for one in entries] == [ticks[-1] / 3] * 3, "the last tick is after the finals"


def test_what_the_model_can_not_say_is_measured_or_told(tmp_path: Path) -> None:
    odd = "two_shot@t128b16l8"
    invented = Invented(broken=frozenset({"lamport"}), unsimulated=frozenset({odd}))
    _, bench, _ = ranked(tmp_path, "sizes=[16K]", profiles=invented)
    assert odd in bench.names[1 << 14]
    assert len(bench.names[1 << 14]) == MEASURED + 3
    assert {name for name in bench.names[1 << 14] if base_of(name) != "two_shot"} == {"lamport"}
    (one,) = read(tmp_path / "t.json").entries
    lamports = {case for case in invented.asked if base_of(case.algorithm) == "lamport"}
    assert one.searched.failed == len(lamports)
    assert one.searched.timed == MEASURED + 3


@pytest.mark.slow
def test_where_none_of_the_best_passes_all_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, first, _ = ranked(tmp_path, "sizes=[16K]")
    best = first.names[1 << 14]
    bench = Counting(bad=frozenset(best))
    (tmp_path / "again").mkdir()
    assert ranked(tmp_path / "again", "sizes=[16K]", bench=bench)[0] == 0
    (one,) = read(tmp_path / "again" / "t.json").entries
    assert one.searched.how == "exhaustive"
    assert one.choice.name not in best
    assert len(bench.names[1 << 14]) > 20
    said = "none of the model's best passed, so all candidates are measured: no candidate passed"
    assert said in capsys.readouterr().err


def test_where_nothing_is_predicted_in_time_all_are_measured(tmp_path: Path, capsys: Said) -> None:
    code, bench, _ = ranked(tmp_path, "sizes=[16K]", profiles=Invented(most=0), model_seconds=0.1)
    assert code == 0
    assert len(bench.names[1 << 14]) > 20
    assert read(tmp_path / "t.json").entries[0].searched.how == "exhaustive"
    said = capsys.readouterr()
    assert "nothing was predicted in time, so all candidates are measured\n" in said.err
    assert "none of the model's best passed" not in said.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "gpu"),
    [
        ((), "NVIDIA A100-SXM4-80GB"),
        ((), "an unknown GPU"),
        (("timing.mode=eager",), GPU),
        (("timing.l2=hot",), GPU),
    ],
)
def test_without_a_model_all_are_measured_and_the_reason_is_said(
    tmp_path: Path, more: tuple[str, ...], gpu: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, bench, invented = ranked(tmp_path, "sizes=[16K]", *more, device=gpu)
    assert invented.asked == []
    assert len(bench.names[1 << 14]) > 20
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "all candidates are measured: " in line]
    same_text(said)
    with refused(RequestError):
        ranked(tmp_path, "sizes=[16K]", *more, device=gpu, model_seconds=5.0, output=tmp_path / "u.json")


def test_another_types_floors_rank_on_request(tmp_path: Path) -> None:
    assert ranked(tmp_path, "sizes=[16K]", device="an unknown GPU", gpu="h200")[0] == 0
    assert read(tmp_path / "t.json").entries[0].searched.model.startswith("h200, sha256:")
    with hydra_over():
        (job,) = compose_jobs(("op=all_reduce", "dtype=bfloat16", "world_size=2"), False)
    model = model_for([job.request], "an unknown GPU", "h200", [CONF])
    assert model.known.name == "h200"
    assert model.name == model_for([job.request], GPU, "", [CONF]).name
    for request, gpu in ((job.request, "b200"), (dataclasses.replace(job.request, world_size=16), "")):
        with refused(RequestError):
            model_for([request], GPU, gpu, [CONF])


@pytest.mark.slow
def test_an_interrupted_search_of_the_model_goes_on_and_one_of_another_way_does_not(
    tmp_path: Path, capsys: Said
) -> None:
    class Stops(Counting):
        def measured(self, cases: Sequence[Case], samples: int) -> list[Measured]:
            if len(self.names) == 2:
                raise KeyboardInterrupt
            return super().measured(cases, samples)

    sizes = "sizes=[1K,4K,16K,64K]"
    assert ranked(tmp_path, sizes, bench=Stops())[0] == 130
    state = json.loads((tmp_path / "t.json.search").read_text())
    assert state["seconds"] >= 0
    code, bench, invented = ranked(tmp_path, sizes)
    assert code == 0
    assert set(bench.names) == {1 << 14, 1 << 16}, "1K and 4K were measured before"
    assert {case.size_bytes for case in invented.asked} == {1 << 14, 1 << 16}
    assert "going on with" in capsys.readouterr().out
    assert ranked(tmp_path, sizes, bench=Stops())[0] == 130
    code, bench, _ = ranked(tmp_path, sizes, exhaustive=True)
    assert set(bench.names) == {1 << 10, 1 << 12, 1 << 14, 1 << 16}
    assert "of another machine, other kernels or other settings" in capsys.readouterr().err


def test_equal_predictions_prefer_fewer_blocks() -> None:
    case = Case("all_reduce", "best", "bfloat16", "float32", "sum", 1 << 20, 2)
    names = ["two_shot@t512b128l8", "two_shot@t512b16l8", "two_shot@t512b32l8", "two_shot@t512b64l8"]
    assert [Ranking().blocks_of(case, name) for name in names] == [64, 16, 32, 64]
    ranking = Ranking(us=dict(zip(names, (10.0, 10.04, 10.03, 11.0), strict=True)), asked=4)
    assert [one.name for one in ranking.best(case, 1)] == ["two_shot@t512b16l8"]
    assert [one.name for one in ranking.best(case, 3)] == [names[0], names[2], names[1]]
    assert ranking.left_out == 0
    assert step_of(ranking.best(case, 4)[-1].name).blocks == 64
