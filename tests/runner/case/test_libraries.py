"""How libraries' collectives are called: slots, and the words each library is asked in, with stand-ins for GPUs."""

import contextlib
import dataclasses
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import torch
import torch.distributed as distributed

from cases.case import Case
from cases.ops import collective
from kernels.baselines import find_baseline
from memory.fabric import LibraryCall
from runner.case import libraries
from runner.case.inputs import make_inputs
from runner.case.libraries import fused_call, nccl_call, nvshmem_call, open_baseline, staged_call
from runner.case.library_slots import LibrarySlots, ReturnedSlots, Slices, slices_of
from runner.request.experiments import CONF
from tests.patience import NEVER_S

RANKS = 4


def test_slots_are_slices_that_begin_at_their_stride_and_each_call_is_noted():
    buffer, other = torch.zeros(3 * 128), torch.zeros(3 * 64)
    called = []
    noted = []
    fabric = SimpleNamespace(rank=0, note_queued=noted.append)
    case = Case("all_reduce", "nccl", "float32", "library", "sum", 400, RANKS)
    slots = LibrarySlots(fabric, case, [buffer], 3, lambda data: called.append(data.storage_offset()))
    slots.write(1, torch.ones(100))
    slots.launch(1)
    assert (called, slots.slots) == ([128], 3)
    assert buffer.nonzero().flatten().tolist() == list(range(128, 228))
    assert torch.equal(slots.output(1), torch.ones(100))
    scattered = dataclasses.replace(case, op="reduce_scatter")
    pairs = LibrarySlots(fabric, scattered, (buffer, other), 3, lambda one, two: two.copy_(2 * one[:25]))
    pairs.write(2, torch.ones(100))
    assert set(pairs.output(2).view(torch.uint8).tolist()) == {0xFF}
    pairs.launch(2)
    assert torch.equal(pairs.output(2), torch.full((25,), 2.0))
    assert pairs.output(2).storage_offset() == 128
    assert noted == ["all_reduce/nccl", "reduce_scatter/nccl"]


def test_a_staged_call_leaves_its_input_and_reduces_in_the_one_buffer():
    source, target, stage = torch.ones(4), torch.zeros(4), torch.full((4,), 9.0)
    seen = []

    def reduce(data):
        seen.append(data.tolist())
        data.mul_(3)

    staged_call(stage, reduce)(source, target)
    assert (seen, source.tolist(), target.tolist()) == ([[1.0] * 4], [1.0] * 4, [3.0] * 4)


def test_a_returned_output_is_of_its_slot_and_poisoned_before_every_call(monkeypatch):
    fabric = SimpleNamespace(rank=0, note_queued=lambda name: None)
    case = Case("matmul_reduce_scatter", "torch/fused", "float32", "library", "sum", 400, RANKS, gemm=(20, 5, 2))
    slots = ReturnedSlots(fabric, case, [torch.zeros(2 * 128)], 2, lambda data: data[:25].view(5, 5) + 1)
    given_back, new_empty = [], torch.Tensor.new_empty
    monkeypatch.setattr(
        torch.Tensor, "new_empty", lambda *given: given_back.append(new_empty(*given)) or given_back[-1]
    )
    for slot in range(2):
        slots.write(slot, torch.full((50,), float(slot)))
        slots.launch(slot)
    assert [slots.output(slot).tolist() for slot in range(2)] == [[1.0] * 25, [2.0] * 25]
    assert [one.isnan().sum().item() for one in given_back] == [slots.output(0).numel()] * 2
    slots.write(1, torch.zeros(50))
    assert slots.output(1).isnan().all()
    assert slots.output(0).tolist() == [1.0] * 25


@pytest.mark.parametrize("op", ["all_gather_matmul", "matmul_reduce_scatter"])
def test_pytorchs_fused_matmuls_get_the_matrices_of_a_case(op, monkeypatch):
    m, n, k = gemm = (8, 16, 24)
    case = Case(op, "torch/fused", "bfloat16", "library", "sum", 2 * m * n, 2, inputs="exact", gemm=gemm)
    given, got = slices_of(case)
    inputs = make_inputs(case, range(2), given.numel, torch.device("cpu"))
    size = inputs[1].numel() - n * k
    others = inputs[0][:size].view(-1, k)

    def all_gather(a, factors, dimension, group_name, return_A):
        assert (dimension, group_name, return_A) == (0, "all", False)
        return None, [torch.cat([others, a]) @ factors[0]]

    def reduce_scatter(a, b, reduction, dimension, group_name):
        assert (reduction, dimension, group_name) == ("sum", 0, "all")
        parts = [a @ b, others @ inputs[0][size:].view(n, k).T]
        return sum(parts)[m // 2 :]

    monkeypatch.setattr(torch.ops.symm_mem, "fused_all_gather_matmul", all_gather, raising=False)
    monkeypatch.setattr(torch.ops.symm_mem, "fused_matmul_reduce_scatter", reduce_scatter, raising=False)
    made = fused_call(case, "all")(inputs[1])
    wanted = sum(a.double() @ b.double().T for a, b in collective(op).factors(case, inputs, 1))
    assert torch.equal(made.double().flatten(), wanted.flatten())
    assert made.numel() == got.numel


@pytest.mark.parametrize(
    ("op", "source", "target"),
    [
        ("reduce_scatter", Slices(100, 128), Slices(25, 128)),
        ("all_gather", Slices(25, 128), Slices(100, 128)),
        ("all_to_all_v", Slices(200, 256), Slices(100, 256)),
    ],
)
def test_slots_have_room_for_what_the_op_gives_and_takes(op, source, target):
    case = Case(op, "nccl", "bfloat16", "library", "none", 200, RANKS)
    assert slices_of(case) == (source, target)


PROGRAM = """
import dataclasses
import itertools
import sys
import torch
import torch.distributed as distributed
from cases.ops import collective
from kernels.numeric.formats import bits_of
from cases.case import Case, Counts
from kernels.baselines import find_baseline
from runner.case.inputs import make_inputs
from runner.case.libraries import nccl_call
from runner.case.library_slots import slices_of

rank, ranks, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=ranks)
group = distributed.group.WORLD
for offer in (*find_baseline("nccl").offers, *find_baseline("cublas").offers):
    if collective(offer.op).product is not None:
        gemm = (8 * ranks, 16, 24)
        case = Case(offer.op, "nccl", "float16", "library", "sum", 2 * 16 * gemm[0], ranks, inputs="exact", gemm=gemm)
        meaning, (given, got) = collective(offer.op), slices_of(case, rank)
        inputs = make_inputs(case, range(ranks), given.numel, torch.device("cpu"))
        target = torch.zeros(got.numel, dtype=torch.float16)
        for _ in range(2):
            nccl_call(case, group, rank)(inputs[rank], target)
        wanted = sum(a.double() @ b.double().T for a, b in meaning.factors(case, inputs, rank))
        assert torch.equal(target.double(), wanted.flatten()), case.id
        print(case.id)
        continue
    root = ranks - 1 if collective(offer.op).rooted else 0
    dtypes = ("float32", "int64") if collective(offer.op).reduces else ("bfloat16", "uint32", "float8_e4m3fn")
    counts = Counts if collective(offer.op).sends else ["uniform"]
    reductions = [one for one in offer.reductions if one != "avg"]  # which Gloo does not have
    for dtype, one, reduction in itertools.product(dtypes, counts, reductions):
        placement = offer.placements[0]
        case = Case(offer.op, "nccl", dtype, "library", reduction, 24 * ranks, ranks, placement, "exact", root=root)
        case = dataclasses.replace(case, counts=str(one))
        meaning = collective(case.op)
        where = slices_of(case, rank)
        inputs = make_inputs(case, range(ranks), where[0].numel, torch.device("cpu"))
        source = inputs[rank].clone()
        target = source if placement == "in_place" else torch.zeros(where[1].numel, dtype=source.dtype)
        nccl_call(case, group, rank)(*((source,) if target is source else (source, target)))
        expected = meaning.parts(case, [bits_of(one) if not meaning.reduces else one for one in inputs], rank)
        if expected is not None:
            found = target if meaning.reduces else bits_of(target)
            how = {"sum": "sum", "min": "amin", "max": "amax"}.get(reduction)
            wanted = getattr(torch.stack(expected), how)(0).to(found.dtype) if meaning.reduces else expected[0]
            assert torch.equal(found, wanted), case.id
        print(case.id)
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_torchs_own_collectives_do_what_the_ops_mean(tmp_path):
    """By the same calls, on the CPU (Gloo): roots, directions, and which of two buffers is which."""
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), "3", str(tmp_path / "store")],
            cwd=CONF.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    for process in ranks:
        out, err = process.communicate(timeout=NEVER_S)
        assert process.returncode == 0, err
        assert len(out.split()) == 3 * 2 * 3 + 4 * 3 + 3 * 3 + 4, out


def nccl_case(op, dtype="bfloat16", **changes):
    baseline = find_baseline("nccl")
    offer = baseline.offer(op)
    values = {"placement": offer.placements[0], "reduction": offer.reductions[0], "root": 0}
    return Case(op, "nccl", dtype, "library", size_bytes=64, world_size=RANKS, **(values | changes))


def test_nccl_is_asked_for_averages(monkeypatch):
    """Gloo has none."""
    asked = []
    monkeypatch.setattr(distributed, "all_reduce", lambda data, op, group: asked.append(op))
    nccl_call(nccl_case("all_reduce", reduction="avg"), None, 1)(torch.zeros(4))
    assert asked == [distributed.ReduceOp.AVG]


def test_split_sizes_are_made_once_and_not_within_a_timed_call(monkeypatch):
    meant = libraries.collective("all_to_all_v")
    sends, asked = meant.sends, list[Case]()

    def counted_sends(case):
        asked.append(case)
        return sends(case)

    called = []

    def all_to_all_single(target, source, got, given, group):
        assert source.numel() == sum(given)
        called.append((got, given))

    monkeypatch.setattr(libraries, "collective", lambda op: replace(meant, sends=counted_sends))
    monkeypatch.setattr(distributed, "all_to_all_single", all_to_all_single)
    case = replace(nccl_case("all_to_all_v", "float32"), counts="zeros")
    call = nccl_call(case, None, 1)
    for _ in range(3):
        call(torch.zeros(2 * case.numel), torch.zeros(2 * case.numel))
    rows = sends(case)
    assert called == [([4 * row[1] for row in rows], [4 * count for count in rows[1]])] * 3
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("op", "dtype", "changes", "expected"),
    [
        ("all_reduce", "float16", {"reduction": "max"}, LibraryCall("reduce", "torch.float16", 32, "max")),
        ("reduce_scatter", "int64", {"reduction": "min"}, LibraryCall("reducescatter", "torch.int64", 2, "min")),
        ("all_gather", "bfloat16", {}, LibraryCall("fcollect", "torch.bfloat16", 8)),
        ("all_to_all", "uint32", {}, LibraryCall("alltoall", "torch.uint32", 4)),
        ("broadcast", "float8_e4m3fn", {"root": 3}, LibraryCall("broadcast", "torch.uint8", 64, root=3)),
    ],
)
def test_nvshmem_is_asked_in_its_own_words(op, dtype, changes, expected):
    values = {"reduction": "none"} | changes
    assert nvshmem_call(Case(op, "nvshmem", dtype, "library", size_bytes=64, world_size=RANKS, **values)) == expected


@pytest.fixture
def windows(monkeypatch):
    """NCCL and torch's pools of memory, whose calls are kept in order."""
    calls = []
    made = MagicMock(device=torch.device("cpu"), rank=1, mem_allocator="NCCL's allocator", calls=calls)
    made._get_backend.return_value = made
    made.synchronize.side_effect = lambda: calls.append("synchronize")
    made.barrier.side_effect = lambda: calls.append("barrier")
    made.register_mem_pool.side_effect = lambda pool, symm: calls.append(("register", pool, symm))
    made.deregister_mem_pool.side_effect = lambda pool: calls.append(("deregister", pool))
    zeros = torch.zeros

    @contextlib.contextmanager
    def using(pool):
        calls.append("begin")
        yield
        calls.append("end")

    monkeypatch.setattr(libraries, "process_group", lambda: made)
    monkeypatch.setattr(torch.cuda, "MemPool", lambda allocator: f"a pool of {allocator}")
    monkeypatch.setattr(torch.cuda, "use_mem_pool", using)
    monkeypatch.setattr(distributed, "all_reduce", lambda data, **named: calls.append(("first", data.numel())))
    monkeypatch.setattr(torch, "zeros", lambda *given, **named: calls.append("memory") or zeros(*given, **named))
    return made


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather"])
def test_all_slots_lie_in_windows_as_long_as_the_contestant_is_open(op, windows):
    case = replace(nccl_case(op), algorithm="nccl/symmetric")
    pool = "a pool of NCCL's allocator"
    buffers = 1 if case.placement == "in_place" else 2
    with open_baseline("nccl/symmetric", windows, windows, case, 3) as opened:
        assert opened.slots == 3
        before = ["memory", ("first", 1), "begin", *["memory"] * buffers, "end", "synchronize", "barrier"]
        assert windows.calls == [*before, ("register", pool, True)]
        windows.calls.clear()
    assert windows.calls == ["synchronize", "barrier", ("deregister", pool)]


def test_after_a_failure_no_window_is_taken_away(windows):
    """Taking one away is collective, and the other ranks may be gone."""

    def fail():
        windows.calls.clear()
        raise KeyError

    with pytest.raises(KeyError), open_baseline("nccl/symmetric", windows, windows, nccl_case("all_reduce"), 1):
        fail()
    assert windows.calls == []
