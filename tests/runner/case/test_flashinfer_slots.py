"""flashinfer's all-reduces on slots: what they are called with, what they are given, and what is given back."""

from dataclasses import replace

import pytest
import torch

from cases.case import Case
from kernels.baselines import find_baseline
from kernels.flashinfer import TRTLLM_LAMPORT, TRTLLM_TWO_SHOT, VLLM_ONE_SHOT, VLLM_TWO_SHOT
from memory.pool import SymmetricPool
from runner.case import flashinfer_slots
from runner.case.check import check_rank
from runner.case.inputs import make_input
from runner.case.libraries import open_baseline
from runner.world.threads import ThreadWorld
from runner.world.world import WorldFailure
from simulator.world import SimulatorOptions
from tests.golden import refused
from tests.patience import NEVER_S
from tests.runner.case.flashinfer_stand_in import StandIn, bytes_at
from tests.runner.judged import judged


class GpuLike:
    """A rank of the simulator that passes for a GPU's."""

    def __init__(self, fabric, library=None):
        self.fabric = fabric
        self.device = torch.device("cpu")
        if library is not None:
            library.local.rank = fabric.rank

    def __getattr__(self, name):
        return getattr(self.fabric, name)

    def note_queued(self, what):
        assert what.startswith(("all_reduce/flashinfer/", "all_reduce/sglang/"))


@pytest.fixture
def two(monkeypatch):
    yield from stand_in(2, monkeypatch)


@pytest.fixture
def four(monkeypatch):
    yield from stand_in(4, monkeypatch)


def stand_in(ranks, monkeypatch):
    library = StandIn(ranks)
    monkeypatch.setattr(flashinfer_slots, "process_group", lambda: "the group")
    monkeypatch.setattr(flashinfer_slots, "lent_bytes", lambda address, size, device: (bytes_at(address, size), None))
    with library.as_module(monkeypatch):
        yield library


def case_of(name, ranks, dtype="bfloat16", size_bytes=4096, **changes):
    return Case("all_reduce", name, dtype, "library", "sum", size_bytes, ranks, **changes)


def checked(library, case, launches=3):
    """The check of a case that ran on all ranks."""
    return judged(case, find_baseline(case.algorithm), launches=launches, wrap=lambda fabric: GpuLike(fabric, library))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", [VLLM_ONE_SHOT, TRTLLM_LAMPORT, TRTLLM_TWO_SHOT])
def test_each_runs_is_checked_and_gives_everything_back(name, dtype, two):
    check = checked(two, case_of(name, 2, dtype))
    assert (check.method, check.wrong, check.launches) == ("bound", 0, 3)
    assert check.ranks_equal_promised
    assert (two.live, two.handles, two.kept, two.workspaces) == ({}, {}, {}, [])
    assert len(two.calls) == 3 * 2


def test_two_stages_have_room_for_what_a_rank_reduces(four, monkeypatch):
    asked = []
    allocate = four.allocate
    monkeypatch.setattr(four, "allocate", lambda what, size: asked.append(size) or allocate(what, size))
    size_bytes = (512 << 10) + 3 * 16
    assert checked(four, case_of(VLLM_TWO_SHOT, 4, size_bytes=size_bytes), launches=1).wrong == 0
    share_bytes = size_bytes // 16 // 4 * 16 + 3 * 16
    assert sorted(asked)[:4] == [256 + share_bytes] * 4, "the last rank takes the three vectors that are left over"


def test_a_librarys_accumulator_is_in_the_bound():
    case = case_of(TRTLLM_LAMPORT, 4, size_bytes=1 << 14)
    parts = [make_input(case, rank, case.numel) for rank in range(4)]
    narrow = parts[0] + parts[1] + parts[2] + parts[3]
    flashinfer, nccl = find_baseline(TRTLLM_LAMPORT), find_baseline("nccl")
    other = replace(case, algorithm="nccl", placement="in_place")
    assert check_rank(other, nccl, 0, [narrow], ()).wrong == 0
    assert check_rank(case, flashinfer, 0, [narrow], ()).wrong > 100
    right = sum((part.float() for part in parts), torch.zeros(case.numel)).bfloat16()
    assert check_rank(case, flashinfer, 0, [right], ()).wrong == 0


def test_trtllm_is_asked_for_the_shot_and_the_rows(two):
    checked(two, case_of(TRTLLM_LAMPORT, 2, size_bytes=64 << 10), launches=1)
    checked(two, case_of(TRTLLM_TWO_SHOT, 2, size_bytes=64 << 10), launches=1)
    assert [(one["one_shot"], one["rows"]) for one in two.calls] == [(True, 4)] * 2 + [(False, 4)] * 2


def opened(library, case, use):
    """What use(fabric, contestant) gives on each rank, with three slots open."""

    def program(fabric, _):
        with SymmetricPool(fabric) as pool:
            like = GpuLike(fabric, library)
            with open_baseline(case.algorithm, like, pool, case, 3) as contestant:
                return use(fabric, contestant)

    return ThreadWorld(case.world_size, SimulatorOptions(heap_bytes=1 << 20)).run(program, None, NEVER_S)


def test_calls_in_graphs_get_their_peers_addresses_once_the_graph_was_made(two):
    case = case_of(VLLM_ONE_SHOT, 2, "float32", 64)

    def use(fabric, contestant):
        for slot in range(3):
            contestant.write(slot, torch.full((16,), float(1 + fabric.rank + 10 * slot)))
        fabric.barrier()
        two.is_capturing = True
        for slot in (0, 1, 2, 1):
            contestant.launch(slot)
        assert all(contestant.output(slot).isnan().all() for slot in range(3)), "nothing runs while it is captured"
        fabric.barrier()
        two.is_capturing = False
        contestant.captured()
        two.replay(fabric.rank)
        return [float(contestant.output(slot)[0]) for slot in range(3)]

    assert opened(two, case, use) == [[3.0, 23.0, 43.0]] * 2
    assert two.live == {}


@pytest.mark.parametrize("table_bytes", [None, 64 * 5])
def test_calls_of_graphs_that_differ_or_are_too_many_for_the_table_are_told(two, monkeypatch, table_bytes):
    if table_bytes is not None:
        monkeypatch.setattr(flashinfer_slots, "VLLM_TABLE_BYTES", table_bytes)

    def use(fabric, contestant):
        two.is_capturing = True
        for _ in range(3 if table_bytes is not None else 1 + fabric.rank):
            contestant.launch(0)
        fabric.barrier()
        contestant.captured()

    with refused(WorldFailure):
        opened(two, case_of(VLLM_ONE_SHOT, 2, "float32", 64), use)


@pytest.mark.parametrize("name", [VLLM_ONE_SHOT, TRTLLM_LAMPORT])
def test_after_a_failure_nothing_waits_for_the_others(name, two):
    """Giving back is collective, and what ran may run still: the world ends with its processes."""

    def use(fabric, contestant):
        raise KeyError(fabric.rank)

    with pytest.raises(WorldFailure, match="KeyError"):
        opened(two, case_of(name, 2), use)
    assert two.live, "the processes' end gives it back"
