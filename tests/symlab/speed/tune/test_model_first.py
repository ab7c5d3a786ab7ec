"""The model asked first: what it ranks best is measured and nothing else, what it can't say is told."""

import dataclasses
import json
import math
import time
from dataclasses import dataclass, field

import pytest

from cases.case import Case
from kernels.tuned_name import base_of, step_of
from runner.gpu.names import CONF
from runner.request.compose import compose_jobs, hydra_over
from runner.request_error import RequestError
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.profiles import Unprofiled
from symlab.speed.tune.command import Options, tune
from symlab.speed.tune.jobs import SIZES
from symlab.speed.tune.model_first import MEASURED, Ranking, model_for
from symlab.speed.tuned.table import read
from tests.golden import refused, same_text
from tests.symlab.speed.tune.test_tune_on_gpus import GPU, Clocked, Finals, on_gpus, true_us


@dataclass
class Invented:
    """Profiles whose predicted times grow with true_us, of all but some candidates."""

    broken: frozenset[str] = frozenset()
    unsimulated: frozenset[str] = frozenset()
    most: int = 1 << 30
    asked: list[Case] = field(default_factory=list)
    limits_s: list[float] = field(default_factory=list)
    closed: bool = False

    def of(self, cases, limit_s=math.inf):
        self.limits_s.append(limit_s)
        for case in cases[: self.most]:
            self.asked.append(case)
            if base_of(case.algorithm) in self.broken:
                yield case, Unprofiled("can't be compiled: ptxas", can_run=False)
            elif case.algorithm in self.unsimulated:
                yield case, Unprofiled("rank 1: it waits", can_run=True)
            else:
                yield case, CaseWork({}, {"hop": true_us(case.algorithm, case.size_bytes)}, ())

    def close(self):
        self.closed = True


def ranked(tmp_path, *more, profiles=None, bench=None, device=GPU, now=time.monotonic, **options):
    """Run symlab tune with the model's profiles invented."""
    there, invented = bench or Clocked(), profiles or Invented()
    how = {"gpu": lambda: device, "profiles": lambda cache_dir, arch, processes: invented, "now": now}
    asked, seams = on_gpus(Finals(tmp_path), *more, bench=lambda worlds, request, compiler: there, **how)
    fields = {"output": tmp_path / "t.json", "processes": 1} | options
    return tune(Options(asked, **fields), asked, seams), there, invented


def test_dependent_launches_are_searched_and_named_in_the_table(tmp_path):
    code, bench, invented = ranked(tmp_path, "timing.dependent_launch=true")
    assert code == 0
    assert all(name.endswith("d") for names in bench.names.values() for name in names)
    entries = read(tmp_path / "t.json").entries
    assert all(one.choice.name.endswith("d") for one in entries)
    for one in (one for one in entries if one.size_bytes in SIZES):
        names, guesses = bench.names[one.size_bytes], {guess.name: guess.us for guess in one.searched.predicted}
        own = {"two_shot@d", "lamport@d"} if one.size_bytes <= 2 << 20 else {"two_shot@d"}
        assert (one.searched.how, len(guesses), one.searched.timed) == ("model", MEASURED, len(names))
        assert list(guesses.values()) == sorted(guesses.values())
        assert names == guesses.keys() | own
        every = {case.algorithm for case in invented.asked if case.size_bytes == one.size_bytes}
        assert min(true_us(name, one.size_bytes) for name in names) == pytest.approx(
            min(true_us(name, one.size_bytes) for name in every), rel=0.02
        )


def test_the_exhaustive_search_measures_all(tmp_path):
    code, bench, invented = ranked(tmp_path, "sizes=[16K]", exhaustive=True)
    assert code == 0
    assert invented.asked == []
    assert len(bench.names[1 << 14]) > 20
    (one,) = read(tmp_path / "t.json").entries
    assert (one.searched.how, one.searched.model, one.searched.predicted) == ("exhaustive", "", ())


def test_the_models_time_ends_and_that_is_said(tmp_path, capsys):
    invented = Invented(most=2)
    assert ranked(tmp_path, "sizes=[16K]", profiles=invented, seconds=1e3)[0] == 0
    (one,) = read(tmp_path / "t.json").entries
    assert invented.limits_s[0] == pytest.approx(500.0, abs=50.0)
    assert one.searched.ranked == 5, "the catalogue's two, two of the grid, and all that is beside the best two"
    assert one.searched.left_out > 20
    said = capsys.readouterr().out
    assert f"its time ended (--seconds): {one.searched.left_out} not predicted" in said
    assert f"{one.searched.left_out} not tried" in said


def test_seconds_of_a_choice_are_its_share_of_the_command(tmp_path):
    ticks = []

    def now():
        ticks.append(len(ticks) * 2.0)
        return ticks[-1]

    ranked(tmp_path, "sizes=[1K,4K]", now=now)
    entries = read(tmp_path / "t.json").entries
    assert [one.searched.seconds for one in entries] == [ticks[-1] / 4] * 4, "the last tick is after the finals"


def test_what_the_model_can_not_say_is_measured_or_told(tmp_path):
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
def test_where_none_of_the_best_passes_all_are_measured(tmp_path, capsys):
    _, first, _ = ranked(tmp_path, "sizes=[16K]")
    best = first.names[1 << 14]
    bench = Clocked(bad=frozenset(best))
    (tmp_path / "again").mkdir()
    assert ranked(tmp_path / "again", "sizes=[16K]", bench=bench)[0] == 0
    (one,) = read(tmp_path / "again" / "t.json").entries
    assert one.searched.how == "exhaustive"
    assert one.choice.name not in best
    assert len(bench.names[1 << 14]) > 20
    said = "none of the model's best passed, so all candidates are measured: no candidate passed"
    assert said in capsys.readouterr().err


def test_where_nothing_is_predicted_in_time_all_are_measured(tmp_path, capsys):
    code, bench, _ = ranked(tmp_path, "sizes=[16K]", profiles=Invented(most=0))
    assert code == 0
    assert len(bench.names[1 << 14]) > 20
    assert read(tmp_path / "t.json").entries[0].searched.how == "exhaustive"
    said = capsys.readouterr()
    assert "nothing was predicted in time, so all candidates are measured\n" in said.err
    assert "none of the model's best passed" not in said.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "gpu"),
    [((), "NVIDIA A100-SXM4-80GB"), ((), "an unknown GPU"), (("timing.mode=eager",), GPU), (("timing.l2=hot",), GPU)],
)
def test_without_a_model_all_are_measured_and_the_reason_is_said(tmp_path, more, gpu, capsys):
    _, bench, invented = ranked(tmp_path, "sizes=[16K]", *more, device=gpu)
    assert invented.asked == []
    assert len(bench.names[1 << 14]) > 20
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "all candidates are measured: " in line]
    same_text(said)


def test_what_the_model_can_not_rank_is_refused():
    with hydra_over():
        (job,) = compose_jobs(("op=all_reduce", "dtype=bfloat16", "world_size=2"), False)
    model = model_for([job.request], GPU, [CONF])
    assert model.name.startswith("h200, sha256:")
    with refused(RequestError):
        model_for([dataclasses.replace(job.request, world_size=16)], GPU, [CONF])


@pytest.mark.slow
def test_an_interrupted_search_of_the_model_goes_on_and_one_of_another_way_does_not(tmp_path, capsys):
    class Stops(Clocked):
        def measured(self, cases, samples):
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


def test_equal_predictions_prefer_fewer_blocks():
    case = Case("all_reduce", "best", "bfloat16", "float32", "sum", 1 << 20, 2)
    names = ["two_shot@t512b128l8", "two_shot@t512b16l8", "two_shot@t512b32l8", "two_shot@t512b64l8"]
    assert [Ranking().blocks_of(case, name) for name in names] == [64, 16, 32, 64]
    ranking = Ranking(us=dict(zip(names, (10.0, 10.04, 10.03, 11.0), strict=True)), asked=4)
    assert [one.name for one in ranking.best(case, 1)] == ["two_shot@t512b16l8"]
    assert [one.name for one in ranking.best(case, 3)] == [names[0], names[2], names[1]]
    assert ranking.left_out == 0
    assert step_of(ranking.best(case, 4)[-1].name).blocks == 64
