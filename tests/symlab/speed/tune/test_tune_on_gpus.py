"""`symlab tune` on GPUs, up to their clocks: a bench with a script, and finalists whose records are invented."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cases.case import Case
from kernels.tuned_name import base_of, step_of
from memory.fabric import Traits
from runner.command.plan import prepare
from runner.records.store import Store
from runner.request.compose import ComposedJob
from runner.request.validate import Request
from runner.request_error import RequestError
from runner.world.fabrics import HostOffer
from symlab.speed.tune import finals as finals_module
from symlab.speed.tune.command import Options, Seams, tune
from symlab.speed.tune.entries import is_own
from symlab.speed.tune.finals import CROSSING
from symlab.speed.tune.jobs import SIZES
from symlab.speed.tune.regret import SIZES as UNSEEN
from symlab.speed.tune.search import Measured
from symlab.speed.tuned.table import read
from tests.golden import refused
from tests.reports.synthetic import record, with_environment, with_request

GPU = "NVIDIA H200"
TURNS = (1.0, 1.0, 1.001, 1.001, 0.999, 0.999)
"""Times of turns over the median: those that choose and those that judge have the same ones."""


BETWEEN = [(int(1.3 * (1 << power)) // 128 - 1 | 1) * 128 for power in range(11, 29, 2)]
FINALS = sorted([*BETWEEN, *(1 << power for power in range(10, 29, 2))])
"""Sizes that are searched, and those between them."""


def true_us(name, size_bytes):
    """An invented time: lamport is quicker up to 16 KiB, two_shot with many threads beyond; fewer blocks are better."""
    step = step_of("x@t256b64l8" if is_own(name) else name)
    small = base_of(name) == "lamport"
    of_step = abs(step.threads - 256) / 512 + step.blocks / 256
    return (2.0 if small else 4.0) + size_bytes / (6e3 if small else 3e5) + of_step


@dataclass
class Clocked:
    """A bench that notes what it measured. us: a case's time; the same turns are up to 1 % off. bad: what is wrong."""

    us: Callable[[Case], float] = lambda case: true_us(case.algorithm, case.size_bytes)
    bad: frozenset[str] = frozenset()
    names: dict[int, set[str]] = field(default_factory=dict)

    def groups(self, cases, beside):
        return [list(cases[at : at + 15]) for at in range(0, len(cases), 15)]

    def measured(self, cases, samples):
        for case in cases:
            self.names.setdefault(case.size_bytes, set()).add(case.algorithm)
        return [
            Measured(problem="it is wrong")
            if case.algorithm in self.bad
            else Measured(tuple(self.us(case) * (1 + turn % 3 / 200) for turn in range(samples)))
            for case in cases
        ]


class Place:
    """A world's place: two GPUs without multicast."""

    def traits(self):
        return Traits("nvshmem", "sm_90a", 2, 1 << 33, multicast=False)

    def close(self):
        pass


@dataclass
class Finals:
    """Runs finalists: their records have us as times, and choices of a table say so and are worse. also: what was run
    beside a job's algorithms at a size, with its time."""

    folder: Path
    worse: float = 1.0
    us: Callable[[Case], float] = lambda case: true_us(case.algorithm, case.size_bytes)
    also: Callable[[Request, int], dict[str, float]] = lambda request, size_bytes: {}
    composed: list[ComposedJob] = field(default_factory=list)

    def __call__(self, given, composed):
        self.composed += composed
        store = Store(self.folder / f"run{len(list(self.folder.glob('run*')))}")
        for job in prepare(given, composed, machine=machine).jobs:
            number, asked = job.composed.number, job.composed.request
            brought = {one.spec.algorithm: {"place": one.place, "digest": one.digest} for one in job.brought}
            table = read(Path(asked.tuned)) if "best" in asked.algorithms else None
            for size in asked.sizes_bytes:
                case = Case("all_reduce", "best", "bfloat16", "float32", "sum", size, 2)
                chosen = table.choice(case, "sm_90a", GPU).name if table is not None else ""
                names = dict.fromkeys(chosen if one == "best" else one for one in job.request.algorithms)
                times = {name: self.us(replace(case, algorithm=name)) for name in names} | self.also(asked, size)
                for name, us in times.items():
                    us *= self.worse if name == chosen else 1.0
                    made = record(name, size, world_size=2, samples_us=[[us * part for part in TURNS]] * 2)
                    kernel = {"chosen": {"by": "best", "algorithm": name, "searched": {"size_bytes": 1 << 10}}}
                    more = {"kernel": kernel if name == chosen else None, "brought": brought}
                    made = with_request(with_environment(made, gpus=({"model": GPU},)), job=number, **more)
                    store.write(made, f"{number:02d}")
        return store.folder

    def names(self, size_bytes):
        """The algorithms that were run at a size."""
        return {
            name for job in self.composed if size_bytes in job.request.sizes_bytes for name in job.request.algorithms
        }


def tuned(tmp_path, *more, worse=1.0, finals=None, **options):
    finals = finals or Finals(tmp_path, worse=worse)
    asked, seams = on_gpus(finals, *more)
    usual = {"output": tmp_path / "h200.json", "processes": 1, "exhaustive": not options.get("unseen")}
    return tune(Options(asked, **usual | options), asked, seams), finals


@pytest.mark.slow
def test_one_size_leaves_none_unseen(tmp_path):
    tuned(tmp_path, "sizes=[1K]")
    with refused(RequestError) as caught:
        tuned(tmp_path, "sizes=[1K]", unseen=True)
    assert "sizes.list" not in str(caught.value)


@pytest.mark.slow
def test_a_table_of_times(tmp_path, capsys):
    code, finals = tuned(tmp_path)
    assert code == 0
    table = read(tmp_path / "h200.json")
    assert (table.gpu, table.arch) == (GPU, "sm_90a")
    sizes = [one.size_bytes for one in table.entries]
    small = [base_of(one.choice.name) for one in table.entries].count("lamport")
    assert [base_of(one.choice.name) for one in table.entries[small:]] == ["two_shot"] * (len(sizes) - small)
    for one in table.entries:
        assert one.choice.value == pytest.approx(true_us(one.choice.name, one.size_bytes))
        assert one.choice.low <= one.choice.value <= one.choice.high
        assert one.choice.value <= one.runner_up.value * 1.02
        assert one.searched.failed == 0
    assert all(one.up_to_bytes + 1 == after.from_bytes for one, after in itertools.pairwise(table.entries))
    # Where lamport's and two_shot's times cross, by their own formula: it is measured close by.
    before, after = table.entries[small - 1 : small + 1]
    expected = (2.0 + (step_of(after.choice.name).blocks - step_of(before.choice.name).blocks) / 256) / (
        1 / 6e3 - 1 / 3e5
    )
    assert before.size_bytes < expected < after.size_bytes < CROSSING * before.size_bytes
    assert before.up_to_bytes == pytest.approx(expected, rel=0.001)
    ran = [job.request.sizes_bytes for job in finals.composed]
    assert ran[: len(FINALS)] == [(size,) for size in FINALS]
    assert sorted(size for (size,) in ran) == sizes
    assert [job.request.baselines for job in finals.composed[: len(FINALS)]] == (["auto", ()] * 10)[:-1]
    assert not any(job.request.baselines for job in finals.composed[len(FINALS) :])
    assert all({"lamport", "two_shot"} <= set(job.request.algorithms) for job in finals.composed[:9:2])
    assert all({"lamport", "two_shot"} & set(job.request.algorithms) for job in finals.composed)
    said = capsys.readouterr().out
    assert f"symlab tune: 10 cases on {GPU}" in said
    assert "algorithms=best" in said


@pytest.mark.slow
def test_the_regret_at_unseen_sizes(tmp_path, capsys):
    tuned(tmp_path)
    code, finals = tuned(tmp_path, unseen=True)
    (job,) = finals.composed
    assert len(job.request.sizes_bytes) == UNSEEN
    assert not set(job.request.sizes_bytes) & set(SIZES)
    assert job.request.algorithms[:3] == ("best", "lamport", "two_shot")
    assert {one.choice.name for one in read(tmp_path / "h200.json").entries} <= set(job.request.algorithms)
    assert code == 0
    assert "20 sizes that the search did not measure, 1 world: median regret 0.0%" in capsys.readouterr().out
    assert tuned(tmp_path, unseen=True, worse=1.05)[0] == 1
    assert "surely above 3%" in capsys.readouterr().out


@pytest.mark.slow
def test_libraries_are_run_beside_choices_as_asked(tmp_path):
    _, finals = tuned(tmp_path, "sizes=[1K,4K]", "timing.samples=7", "track.experiment=tuned")
    request = finals.composed[0].request
    assert (request.timing.samples, str(request.timing.limit)) == (7, "none"), (
        "no limit of links is measured for a table"
    )
    assert (str(request.track.name), request.track.experiment) == ("mlflow", "tuned")
    _, finals = tuned(tmp_path, "sizes=[1K,4K]", unseen=True)
    assert str(finals.composed[0].request.track.name) == "none"
    assert finals.composed[0].request.baselines == "auto"
    _, finals = tuned(tmp_path, "sizes=[1K,4K]", "baselines=[nccl]", unseen=True)
    assert finals.composed[0].request.baselines == ("nccl",)


class Stops(Finals):
    """Finals whose second command is interrupted."""

    def __call__(self, given, composed):
        if self.composed:
            raise KeyboardInterrupt
        return super().__call__(given, composed)


@pytest.mark.slow
def test_finals_that_were_run_before_an_interrupt_are_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(finals_module, "PART", 4)
    sizes = "sizes=[1K,4K,16K]"
    stops = Stops(tmp_path)
    assert tuned(tmp_path, sizes, finals=stops)[0] == 130
    assert [job.number for job in stops.composed] == [0, 1, 2, 3]
    assert not (tmp_path / "h200.json").exists()
    code, again = tuned(tmp_path, sizes)
    assert code == 0
    assert [job.number for job in again.composed] == list(range(4, 4 + len(again.composed))), "1K to 8K were run"
    table = read(tmp_path / "h200.json")
    assert set(FINALS[:5]) <= {one.size_bytes for one in table.entries}
    assert table.made["records"].startswith("run0, run1")


def machine():
    return HostOffer(2, "", True)


def on_gpus(finals, *more, algorithms=("lamport", "two_shot"), **seams):
    """Overrides of a search on two GPUs, and what stands for these; seams: what is otherwise."""
    asked = ("op=all_reduce", f"algorithms=[{','.join(algorithms)}]", "dtype=bfloat16", "fabric=nvshmem", *more)
    usual = {"bench": lambda worlds, request, compiler: Clocked(), "worlds": lambda request, say: Place()}
    usual |= {"finals": finals, "machine": machine, "gpu": lambda: GPU}
    return asked, Seams(**usual | seams)
