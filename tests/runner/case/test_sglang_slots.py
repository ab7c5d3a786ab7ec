"""SGLang's all-reduces on slots: what its kernels are launched with, on what memory, and what they leave there."""

import pytest
import torch

from cases.case import Case
from cases.sglang_sizes import PULL, PUSH
from kernels.baselines import find_baseline
from memory.pool import SymmetricPool
from runner.case import library_modules, sglang_slots
from runner.case.libraries import open_baseline
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.golden import refused
from tests.patience import NEVER_S
from tests.runner.case.sglang_stand_in import StandIn
from tests.runner.case.test_flashinfer_slots import GpuLike
from tests.runner.judged import judged

MULTIPROCESSORS = 12


@pytest.fixture
def stand_in(monkeypatch):
    def make(ranks):
        library = StandIn(ranks)
        monkeypatch.setattr(sglang_slots, "symmetric_buffer", library.symmetric_buffer)
        monkeypatch.setattr(library_modules, "load", lambda module: library)
        monkeypatch.setattr(sglang_slots, "_stream", lambda fabric: 0)
        monkeypatch.setattr(sglang_slots, "_multiprocessors", lambda fabric: MULTIPROCESSORS)
        return library

    return make


class Meeting(GpuLike):
    """A rank that counts its barriers."""

    barriers = 0

    def barrier(self):
        self.barriers += 1
        self.fabric.barrier()


def case_of(name, ranks, size_bytes, dtype="bfloat16"):
    baseline = find_baseline(name)
    placement = baseline.placement("all_reduce", "out_of_place", ranks)
    return Case("all_reduce", name, dtype, "library", "sum", size_bytes, ranks, placement=placement)


def checked(case, launches=3):
    """The check of a case that ran on all ranks."""
    return judged(case, find_baseline(case.algorithm), launches=launches, wrap=GpuLike)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    ("name", "ranks", "size_bytes", "what", "grid"),
    [
        (PUSH, 2, 4096, "push", (MULTIPROCESSORS, 128)),
        (PUSH, 4, 64 << 10, "push", (MULTIPROCESSORS, 512)),
        (PULL, 2, (2 << 20) + 16, "pull 1", (MULTIPROCESSORS, 512)),
        (PULL, 4, 512 << 10, "pull 2", (MULTIPROCESSORS, 512)),
    ],
)
def test_each_runs_as_sglang_launches_it_and_is_right(name, ranks, size_bytes, what, grid, dtype, stand_in):
    library = stand_in(ranks)
    check = checked(case_of(name, ranks, size_bytes, dtype))
    assert (check.method, check.wrong, check.launches) == ("bound", 0, 3)
    assert check.ranks_equal_promised
    assert {(one["what"], one["grid"]) for one in library.calls} == {(what, grid)}
    assert len(library.calls) == 3 * ranks


@pytest.mark.parametrize("name", [PUSH, PULL])
def test_slots_are_their_own_memory(name, stand_in):
    """Three slots in turns, each twice: what one holds is not another's, and inboxes are empty between calls."""
    stand_in(4)
    case = case_of(name, 4, 512 << 10 if name == PULL else 64, "float32")

    def program(fabric, _):
        rank, found = Meeting(fabric), []
        with SymmetricPool(fabric) as pool:
            with open_baseline(name, rank, pool, case, 3) as contestant:
                for turn in range(2):
                    for slot in range(3):
                        value = float(1 + fabric.rank + 10 * slot + 100 * turn)
                        contestant.write(slot, torch.full((case.numel,), value))
                    fabric.barrier()
                    for slot in (2, 0, 1):
                        contestant.launch(slot)
                    found += [float(contestant.output(slot)[-1]) for slot in range(3)]
                    fabric.barrier()
                before = rank.barriers
            assert rank.barriers > before, "ranks meet before memory is given back that a peer may still use"
        return found

    world = ThreadWorld(4, SimulatorOptions(heap_bytes=1 << 20))
    assert world.run(program, None, NEVER_S) == [[10.0, 50.0, 90.0, 410.0, 450.0, 490.0]] * 4


def test_a_launch_that_fails_is_named(stand_in):
    library = stand_in(2)
    library.status = 98
    with refused(WorldFailure, r"(?<=sglang_slots.py:)\d+"):
        checked(case_of(PUSH, 2, 4096))
