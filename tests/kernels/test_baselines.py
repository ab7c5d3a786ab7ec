"""Baselines: what each refuses and why; and what they do, as far as a machine without a GPU can tell."""

import dataclasses
import importlib.metadata
import subprocess
import sys
from functools import partial

import pytest
import torch

import tests.memory.nvshmem_stand_in as stand_in
from cases import sglang_sizes
from cases.case import Case
from cases.dtypes import ALL, reductions_of
from cases.ops import OPS, collective
from kernels import baselines, flashinfer, sglang
from kernels.baselines import BASELINES, find_baseline, names_for, refuses_baseline, usual_names_for
from kernels.catalogue import find
from kernels.flashinfer import PACKAGE, VLLM_TWO_SHOT
from kernels.spec import refuses
from memory.fabric import Traits
from memory.pool import SymmetricPool
from runner.case.check import check_rank, merge
from runner.case.inputs import make_input
from runner.case.libraries import open_baseline
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.golden import refused, same_text
from tests.patience import NEVER_S

NVSHMEM = next(one for one in BASELINES if one.name == "nvshmem")
GPUS = Traits("nvshmem", "sm_90a", 8, 8 << 30, True)


@pytest.fixture(autouse=True)
def libraries_are_there(monkeypatch):
    """As far as a machine can tell; test_flashinfer.py and test_sglang.py have what is missing elsewhere."""
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.7" if name == PACKAGE else version(name))
    monkeypatch.setattr(flashinfer, "is_prebuilt", lambda module: True)
    by_name = {one: dataclasses.replace(find_baseline(one), missing=lambda: "") for one in sglang.MODULES}
    monkeypatch.setattr(baselines, "BASELINES", tuple(by_name.get(one.name, one) for one in BASELINES))


OFFERS = [(baseline.algorithm, offer) for baseline in BASELINES for offer in baseline.offers]


def case_of(algorithm, op="all_reduce", **changes):
    """A usual case of an op: what every baseline that does the op takes."""
    baseline = find_baseline(algorithm)
    ranks = changes.get("world_size", 8)
    offer = baseline.offer(op, ranks) if op in baseline.ops else baseline.offers[0]
    reduction = offer.reductions[0]
    size_bytes = {VLLM_TWO_SHOT: 1 << 20, sglang_sizes.PULL: 4 << 20}.get(algorithm, 4096)
    case = Case(op, algorithm, "bfloat16", "library", reduction, size_bytes, ranks, placement=offer.placements[0])
    return dataclasses.replace(case, **changes)


def reason(algorithm, traits=GPUS, **changes):
    baseline = find_baseline(algorithm)
    found = refuses_baseline(baseline, case_of(algorithm, **changes), traits)
    return None if found is None else str(found)


def test_the_names_are_these():
    """And those that are measured unless others are named; staged ones are not."""
    same_text("\n".join(f"{op}: {', '.join(names_for(op))}" for op in OPS))
    assert find_baseline("one_shot") is None
    staged = {"torch/two_shot_staged", "torch/multimem_staged"}
    assert [set(names_for(op)) - set(usual_names_for(op)) for op in OPS] == [staged, *[set()] * (len(OPS) - 1)]


@pytest.mark.parametrize(("name", "offer"), OFFERS, ids=lambda value: getattr(value, "op", value))
def test_each_can_do_a_usual_case_on_gpus_and_none_in_the_simulator(name, offer):
    ranks = offer.world_sizes[0] if offer.world_sizes and 8 not in offer.world_sizes else 8
    gpus = dataclasses.replace(GPUS, world_size=ranks)
    assert reason(name, gpus, op=offer.op, world_size=ranks) is None
    simulated = dataclasses.replace(gpus, name="simulator", simulated=True)
    assert reason(name, simulated, op=offer.op, world_size=ranks) == f"{name} needs GPUs: the fabric simulator has none"


@pytest.mark.parametrize(("name", "offer"), OFFERS, ids=lambda value: getattr(value, "op", value))
def test_offers_are_of_types_and_reductions_that_there_are(name, offer):
    assert set(offer.dtypes) <= set(ALL)
    if not collective(offer.op).reduces:
        assert (offer.reductions, offer.dtypes) == (("none",), ALL)
        return
    for dtype in offer.dtypes:
        assert set(offer.reductions) <= set(reductions_of(dtype))


TAKEN = (
    ("nccl", {"dtype": "float16"}),
    ("nvshmem", {"dtype": "float16"}),
    ("nccl", {"size_bytes": 6}),
    *(("nccl", {"reduction": one}) for one in ("max", "avg")),
    ("nccl", {"op": "all_gather", "dtype": "float8_e4m3fn"}),
    ("nvshmem", {"op": "broadcast", "dtype": "float8_e5m2"}),
    ("nvshmem", {"offset": 1}),
)
REFUSED = (
    *((name, {"dtype": "float16"}) for name in ("torch/one_shot", "torch/two_shot")),
    *(("nccl", {"dtype": dtype}) for dtype in ("uint32", "float8_e4m3fn")),
    ("nccl", {"reduction": "xor", "dtype": "int32"}),
    ("nvshmem", {"reduction": "avg"}),
    ("nccl", {"placement": "out_of_place"}),
    ("nccl", {"op": "all_gather", "placement": "in_place"}),
    ("torch/one_shot", {"size_bytes": 6}),
    ("nccl", {"size_bytes": 7}),
    ("nccl", {"size_bytes": 0}),
    ("nccl", {"op": "all_to_all", "size_bytes": 30}),
    ("torch/two_shot", {"op": "reduce_scatter", "size_bytes": 192}),
    ("nccl", {"offset": 1}),
    ("nccl", {"world_size": 4}),
    ("nvshmem", {"op": "reduce"}),
)


def test_what_is_taken_and_what_is_refused_and_why():
    """Each refusal with its configuration key."""
    assert {reason(name, **changes) for name, changes in TAKEN} == {None}
    for name, changes in REFUSED:
        baseline = find_baseline(name)
        found = refuses_baseline(baseline, case_of(name, **changes), GPUS)
        same_text(f"{found.key}: {found}")


def test_kernels_and_libraries_say_the_same_of_the_same():
    """Sizes, worlds, multicast and mappings: the sentence is one, but for the name."""
    spec, op = find("all_reduce/multimem_one_shot"), collective("all_reduce")
    baseline = find_baseline("torch/multimem")
    apart = dataclasses.replace(GPUS, unmapped="rank 0 can't reach rank 1")
    without = dataclasses.replace(GPUS, multicast=False, multicast_reason="no switch")
    worlds = [({"size_bytes": 7}, GPUS), ({"world_size": 4}, GPUS)]
    for changes, traits in (*worlds, ({}, apart), ({}, without)):
        theirs = refuses_baseline(baseline, case_of("torch/multimem", **changes), traits)
        ours_too = {"algorithm": "multimem_one_shot", "accumulator": "native", "placement": "out_of_place"}
        case = dataclasses.replace(case_of("torch/multimem", **changes), **ours_too)
        ours = refuses(spec, op, case, traits)
        assert str(theirs) == str(ours).replace(spec.name, baseline.name)


def test_some_do_an_op_on_some_world_sizes_only():
    three = dataclasses.replace(GPUS, world_size=3)
    changes = {"op": "reduce_scatter", "world_size": 3, "size_bytes": 3 * 64}
    assert reason("torch/two_shot", three, **changes) == "torch/two_shot does reduce_scatter on 2, 4, 8 ranks, not on 3"
    assert reason("nccl", three, **changes) is None


def test_a_placement_is_the_wanted_one_or_the_only_one():
    nccl, nvshmem = find_baseline("nccl"), find_baseline("nvshmem")
    assert [nccl.placement("all_reduce", wanted) for wanted in ("out_of_place", "in_place")] == ["in_place"] * 2
    assert [nccl.placement("all_gather", wanted) for wanted in ("out_of_place", "in_place")] == ["out_of_place"] * 2
    assert nvshmem.placement("all_reduce", "in_place") == "in_place"
    with refused():
        nvshmem.offer("reduce")


def test_one_rank_is_no_comparison_but_of_matmuls():
    alone = dataclasses.replace(GPUS, world_size=1)
    assert reason("nccl", alone, world_size=1) == "nccl is compared on 2 ranks or more, not on 1"
    assert reason("cublas", alone, op="matmul", world_size=1) is None


def test_no_multicast_and_unmapped_ranks_are_refused_with_their_reason():
    without = dataclasses.replace(GPUS, multicast=False, multicast_reason="Failed to retrieve multicast buffer")
    on_the_switch = ("torch/multimem", "torch/multimem_staged")
    for name in on_the_switch:
        refusal = reason(name, without)
        assert refusal.endswith("has none: Failed to retrieve multicast buffer")
    assert {reason(name, without) for name in names_for("all_reduce") if name not in on_the_switch} == {None}
    apart = dataclasses.replace(GPUS, unmapped="rank 0 can't reach ranks 8, 9")
    refusal = reason("torch/two_shot", apart)
    assert "rank 0 can't reach ranks 8, 9" in refusal
    assert reason("nccl", apart) is None


def test_the_table_is_read_without_torch():
    code = "import sys, kernels.baselines; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("installed", "missing"),
    [("2.8.0+cu128", "PyTorch 2.8.0+cu128 registers no symmetric windows"), ("2.9.0a0", ""), ("2.13.0+cpu", "")],
)
def test_symmetric_windows_need_a_torch_that_registers_them(monkeypatch, installed, missing):
    monkeypatch.setattr(importlib.metadata, "version", lambda name: installed)
    expected = f"nccl/symmetric is unavailable: {missing}" if missing else None
    assert reason("nccl/symmetric") == expected
    assert reason("nccl") is None


def test_windows_are_offered_what_nccl_has_kernels_for():
    """Sums and averages of floats up to 32 bits, and data that only moves."""
    for dtype in ALL:
        fits = dtype in ("float32", "float16", "bfloat16")
        assert (reason("nccl/symmetric", dtype=dtype) is None) is fits
        assert reason("nccl/symmetric", op="all_gather", dtype=dtype) is None
    assert "does not do broadcast" in str(reason("nccl/symmetric", **{"op": "broadcast", "reduction": "none"}))
    assert reason("nccl/symmetric", reduction="max") is not None


def test_the_library_is_named_with_its_version():
    """NVSHMEM's and NCCL's are those of the libraries that were loaded, not of the packages that are installed."""
    traits = Traits("nvshmem", "sm_90a", 2, 1 << 30, False, library="NVSHMEM 3.4.5", nccl="2.32.3")
    torch_version = torch.__version__.split("+")[0]
    assert baselines.library_of("torch/one_shot", traits) == f"PyTorch {torch_version} symmetric memory"
    for name in ("nccl", "nccl/symmetric"):
        assert baselines.library_of(name, traits) == "NCCL 2.32.3"
        assert baselines.library_of(name, dataclasses.replace(traits, nccl="")) == "NCCL (none is loaded)"
    assert baselines.library_of("nvshmem", traits) == "NVSHMEM 3.4.5"


def one_wrong(collected, call, inputs, rank):
    """What the library gives, with one element wrong on rank 0."""
    found = collected(call, inputs, rank)
    return found + 3 * (torch.arange(len(found)) == (5 if rank == 0 else -1))


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
@pytest.mark.parametrize("wrong", [False, True])
def test_a_baseline_is_checked_like_a_kernel(placement, wrong, monkeypatch):
    """On the stand-in for NVSHMEM."""
    case = case_of("nvshmem", placement=placement, world_size=2, size_bytes=64)

    if wrong:
        monkeypatch.setattr(stand_in, "_collected", partial(one_wrong, stand_in._collected))
    world = ThreadWorld(2, machine=stand_in.StandInWorld(2))
    outcomes = world.run(run_case, Plan(case, NVSHMEM, launches=3), NEVER_S)
    check = merge(case, NVSHMEM, [outcome.check for outcome in outcomes if outcome.check is not None])
    assert check.method == "bound"
    assert (check.launches, check.elements) == (3, 2 * 3 * 32)
    assert check.wrong == (3 if wrong else 0)
    if wrong:
        assert (check.first_mismatch.rank, check.first_mismatch.index) == (0, 5)


def test_unchecked_baselines_bring_nothing_home():
    plan = Plan(case_of("nvshmem", world_size=2, size_bytes=64), NVSHMEM, check=False)
    outcomes = ThreadWorld(2, machine=stand_in.StandInWorld(2)).run(run_case, plan, NEVER_S)
    assert [outcome.check for outcome in outcomes] == [None, None]


def test_a_baseline_runs_cases_of_its_own_name_only():
    with refused():
        Plan(dataclasses.replace(case_of("nccl"), algorithm="one_shot"), NVSHMEM)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_librarys_sums_are_held_to_the_dtypes_own_bound(dtype):
    """A sum in the dtype in any order is right; a contribution left out is not."""
    case = case_of("nccl", dtype=dtype, size_bytes=4000)
    parts = [make_input(case, rank, case.numel) for rank in range(8)]
    backwards = parts[7].clone()
    for part in parts[6::-1]:
        backwards += part
    promise = find_baseline("nccl")
    assert check_rank(case, promise, 0, [backwards], ()).wrong == 0
    assert check_rank(case, promise, 0, [backwards - parts[3]], ()).wrong > case.numel // 4
    assert check_rank(case, promise, 0, [backwards], ()).bound.startswith("min(S - E")


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda one: one.name)
def test_every_name_can_be_opened(baseline):
    """As far as the context manager: what is in it needs a GPU."""

    def program(fabric, _):
        with SymmetricPool(fabric) as pool:
            opened = open_baseline(baseline.algorithm, fabric, pool, case_of(baseline.algorithm, world_size=1), 1)
            return type(opened).__name__

    world = ThreadWorld(1, SimulatorOptions(heap_bytes=1 << 20))
    assert world.run(program, None, NEVER_S) == ["_GeneratorContextManager"]
