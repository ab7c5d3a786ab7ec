"""The whole search on a synthetic machine, whose law of time is known: what its table gives is held against the law.

The law is that of the failure that this search once had: few blocks move little, however much a link carries, and a
model with one rate for a link chose 2 to 8 blocks where the catalogue had 64.
"""

import itertools
import math
import random
import statistics
from dataclasses import dataclass

import pytest

from cases.case import Case
from kernels.catalogue import find
from memory.fabric import Traits
from symlab.speed.predict.case_work import CaseWork, Direction, PhaseWork
from symlab.speed.tune.candidates import Candidates
from symlab.speed.tune.command import Options, tune
from symlab.speed.tune.jobs import SIZES
from symlab.speed.tune.regret import unseen_sizes
from symlab.speed.tune.sample import BLOCKS, LOADS, THREADS
from symlab.speed.tuned.table import read
from tests.symlab.speed.tune.test_tune_on_gpus import GPU, Clocked, Finals, on_gpus

ALGORITHMS = ("one_shot", "two_shot", "lamport")
LATENCY_US = {"push": 0.3, "pull": 0.9}
BLOCK_GBPS, LINK_GBPS, MEMORY_BLOCK_GBPS, MEMORY_GBPS = 40.0, 360.0, 110.0, 2800.0
TRAITS = Traits("nvshmem", "sm_90a", 2, 1 << 33, multicast=False)
UNSEEN = unseen_sizes(SIZES[0], SIZES[-1], 128)


@dataclass(frozen=True, slots=True)
class Launched:
    """What the law takes of a candidate: blocks, bytes in flight in a block, and whether it pushes."""

    blocks: int
    in_flight: int
    way: str


def launched(case):
    spec = find(case.name)
    launch = spec.launch(case)
    choices = spec.choices(case)
    push = case.algorithm.startswith("lamport") or bool(choices.get("push"))
    threads, blocks = math.prod(_extent(launch.block)), math.prod(_extent(launch.grid))
    return Launched(blocks, threads * int(choices.get("unroll", 4)) * 16, "push" if push else "pull")


def _extent(one):
    return (one,) if isinstance(one, int) else one


def moved(case):
    """Bytes over a link in each phase, and bytes through memory, with 2 ranks."""
    size = float(case.size_bytes)
    if case.algorithm.startswith("two_shot"):
        return [size / 2, size / 2], 2 * size
    return [size], 3 * size


def true_us(case):
    """The law: bytes in flight over latency, no more than a multiprocessor moves, times blocks, up to the link's."""
    how = launched(case)
    links, memory = moved(case)
    block = min(BLOCK_GBPS, how.in_flight / LATENCY_US[how.way] / 1e3)
    rate = min(LINK_GBPS, how.blocks * block)
    memory_rate = min(MEMORY_GBPS, how.blocks * MEMORY_BLOCK_GBPS)
    return 2.0 + 0.8 * len(links) + how.blocks * 0.002 + sum(links) / rate / 1e3 + memory / memory_rate / 2e3


@dataclass
class Profiler:
    """Profiles of the law's machine. kind: "knowing", what a launch moves with how many blocks; "blind", without the
    blocks, so that the model has one rate of a link; "liar", the worse the quicker."""

    kind: str

    def of(self, cases, limit_s=math.inf):
        for case in cases:
            if self.kind == "liar":
                yield case, CaseWork({}, {"hop": 1e6 / true_us(case)}, ())
                continue
            how = launched(case)
            links, memory = moved(case)
            ways = [Direction(one, 0.0, 0.0) if how.way == "push" else Direction(0.0, one, 0.0) for one in links]
            phases = tuple(PhaseWork((way,), memory / len(ways)) for way in ways)
            rounds = max(sum(links) / how.blocks / how.in_flight - len(links), 0.0)
            wait = "own_load" if how.way == "push" else "remote_load"
            least = {"hop": float(len(links))}
            blocks = how.blocks if self.kind == "knowing" else 0
            yield case, CaseWork(least, {**least, wait: rounds}, phases, blocks=blocks)

    def close(self):
        pass


def noisy(us, chance):
    return us * chance.lognormvariate(0, 0.005)


def library_us(request, size):
    """A library takes 20 % longer than the catalogue's best."""
    assert request.baselines == ("auto" if size in SIZES else ())
    return {"nccl": 1.2 * min(true_us(one) for one in own(size))} if request.baselines else {}


def case_of(name, size):
    return Case("all_reduce", name, "bfloat16", "float32", "sum", size, 2)


def candidates(size):
    return Candidates(case_of("best", size), ALGORITHMS, TRAITS)


def own(size):
    return candidates(size).own()


def best_us(size):
    """The law's best over all that a search could try."""
    every = itertools.product(ALGORITHMS, THREADS, BLOCKS, LOADS, ("", "p"))
    names = [
        f"{name}@t{threads}b{blocks}l{loads}{push}"
        for name, threads, blocks, loads, push in every
        if (not push or name == "two_shot") and threads * loads <= 8192
    ]
    place = candidates(size)
    return min(true_us(one) for one in (*place.own(), *place.named(names)))


def searched(folder, kind, algorithms=ALGORITHMS, *more):
    """Run symlab tune on the machine, with a model of some kind."""
    chance = random.Random(3)

    def us(case):
        return noisy(true_us(case), chance)

    bench, finals = Clocked(us), Finals(folder, us=us, also=library_us)
    how = {"bench": lambda *_: bench, "profiles": lambda *_, **__: Profiler(kind)}
    asked, seams = on_gpus(finals, *more, algorithms=algorithms, **how)
    assert tune(Options(asked, output=folder / "t.json", processes=1), asked, seams) == 0
    return read(folder / "t.json"), bench, finals


def chosen_us(table, size):
    name = table.choice(case_of("best", size), "sm_90a", GPU).name
    return true_us(case_of(name, size))


def test_the_catalogue_itself_is_not_the_best_of_this_machine():
    """Else a search that always took it would pass all of the following."""
    assert max(min(map(true_us, own(size))) / best_us(size) for size in SIZES) > 1.05


@pytest.mark.parametrize(("kind", "is_near"), [("blind", False), ("knowing", True)])
def test_a_model_with_one_rate_of_a_link_prefers_few_blocks(tmp_path, kind, is_near):
    """The failure itself: stores wait for nothing, so that without the blocks few of them look as good as many. What
    such a model ranks best of those that push takes 1.5 times as long as it could at 16M."""
    table, _, _ = searched(tmp_path, kind, ("two_shot",), "sizes=[16M]")
    (one,) = table.entries
    guess = case_of(next(guess.name for guess in one.searched.predicted if guess.name.endswith("p")), 16 << 20)
    assert (true_us(guess) < 1.1 * best_us(16 << 20)) == is_near
    assert is_near or true_us(guess) > 1.5 * best_us(16 << 20)


@pytest.mark.parametrize("kind", ["knowing", "blind", "liar"])
def test_the_search_on_a_machine_whose_law_is_known(tmp_path, kind):
    table, bench, finals = searched(tmp_path, kind)
    between = [(int(1.3 * (1 << power)) // 128 - 1 | 1) * 128 for power in range(11, 29, 2)]
    assert {*SIZES, *between} <= {one.size_bytes for one in table.entries}
    for size in SIZES:
        names = {one.algorithm for one in own(size)}
        assert names <= bench.names[size], "the catalogue's own are measured"
        assert names <= finals.names(size), "and finalists"
    for one in table.entries:
        quickest = min(own(one.size_bytes), key=true_us).algorithm
        assert quickest in finals.names(one.size_bytes), "between two sizes, too"
        library = one.library.name if one.library is not None else ""
        assert library == ("nccl" if one.size_bytes in SIZES else "")
        catalogue_us = min(map(true_us, own(one.size_bytes)))
        # Of two of the catalogue's own that differ by less than the noise of their medians either may be held.
        assert chosen_us(table, one.size_bytes) <= catalogue_us * 1.004, (one.size_bytes, one.choice.name)
    for size in UNSEEN:
        assert chosen_us(table, size) <= min(map(true_us, own(size))) * 1.01, size
    if kind == "knowing":
        regrets = [chosen_us(table, size) / best_us(size) - 1 for size in (*SIZES, *UNSEEN)]
        assert statistics.median(regrets) <= 0.01
        assert max(regrets) <= 0.06
