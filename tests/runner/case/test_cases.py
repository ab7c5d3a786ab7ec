"""From a request to cases, and what only the catalogue can refuse."""

import dataclasses

import pytest

from cases.dtypes import ALL, REDUCTIONS
from cases.ops import collective
from cases.refusal import Refusal
from kernels.baselines import usual_names_for
from kernels.catalogue import SPECS, find
from kernels.flashinfer import MODULES as FLASHINFER
from kernels.sglang import MODULES as SGLANG
from kernels.spec import refuses
from memory.fabric import Traits
from runner.case.cases import cases_of, check_against_catalogue, names_of, resolved, sizes_of
from runner.case.host_memory import check_host_memory
from runner.case.memory_needed import heap_bytes_needed, heap_bytes_to_measure, measured_in_turns
from runner.request_error import RequestError
from tests.golden import refused, same_text
from tests.runner.conftest import TWO, asked, on_its_fabric


def request(*arguments):
    """The first job's request, resolved; two algorithms, where neither an experiment nor a key says which."""
    own = any(part in " ".join(arguments) for part in ("algorithms=", "exp="))
    return on_its_fabric(still_open(*([] if own else [TWO]), *arguments))


def test_sizes_outside_algorithms_inside():
    wanted = request("+exp=allreduce_bf16", "sizes=[4K,1K]", "seed=7", "inputs=exact")
    cases = cases_of(wanted)
    assert [(case.size_bytes, case.algorithm) for case in cases] == [
        (size_bytes, algorithm)
        for size_bytes in (4096, 1024)
        for algorithm in ("one_shot", "two_shot", "multimem_one_shot", "multimem_two_shot")
    ]
    assert {(case.seed, case.inputs, case.world_size, case.dtype) for case in cases} == {(7, "exact", 8, "bfloat16")}
    assert cases == cases_of(wanted)
    assert len({case.id for case in cases}) == len(cases)
    assert cases[0].id == "all_reduce-one_shot-bfloat16-float32-sum-n8-4096B-out_of_place-exact-s7"


UNKNOWN = [
    *("op=allreduce", "op=x", "dtype=bf16", "reduction=summ", "accumulator=float64"),
    *("algorithms=[one_shoot]", "algorithms=[all]", "algorithms=[auto]", "algorithms=[one_shot,all]"),
    *("algorithms=[ncl]", "algorithms=[one_shoot] timing.dependent_launch=true"),
    *("baselines=[auto]", "baselines=[none]", "baselines=[torch/oneshot]", "baselines=[one_shot]"),
]
IMPOSSIBLE = [
    *("dtype=bfloat16 accumulator=float16", "op=all_to_all placement=in_place sizes=[4K] algorithms=auto"),
    *("sizes=[1K,6]", "sizes=1", "sizes=1G", "sizes=4 world_size=72 fabric.heap_bytes=4K"),
    *("fabric.heap_bytes=8G", "fabric=nvshmem sizes=[256M] fabric.heap_bytes=512M"),
]


@pytest.mark.parametrize("arguments", [*UNKNOWN, *IMPOSSIBLE])
def test_what_the_catalogue_refuses(arguments):
    with refused(RequestError):
        check_against_catalogue(request(*arguments.split()))


def test_dependent_launches_are_in_our_kernels_names_alone():
    given = ["algorithms=[lamport,two_shot@t512b64l8p,nccl]", "timing.dependent_launch=true"]
    assert request(*given).algorithms == ("lamport@d", "two_shot@t512b64l8pd", "nccl")
    assert request(given[0]).algorithms == ("lamport", "two_shot@t512b64l8p", "nccl")


@pytest.mark.parametrize("placement", ["out_of_place", "in_place"])
def test_what_is_said_to_fit_fits_and_one_element_more_does_not(placement):
    heap_bytes = 1 << 20
    arguments = ("algorithms=two_shot", f"placement={placement}", f"fabric.heap_bytes={heap_bytes}")
    with pytest.raises(RequestError) as caught:
        check_against_catalogue(request(*arguments, "sizes=2M"))
    most = int(str(caught.value).partition("at most ")[2].partition(" bytes")[0])
    assert most > heap_bytes // (4 if placement == "out_of_place" else 2)
    check_against_catalogue(request(*arguments, f"sizes={most}"))
    with pytest.raises(RequestError):
        check_against_catalogue(request(*arguments, f"sizes={most + 4}"))


def as_asked(*arguments, specs=SPECS):
    """The request, resolved, with nothing put before what was asked for."""
    return on_its_fabric(still_open(*arguments), specs)


def still_open(*arguments):
    (found,) = asked(" ".join(arguments))
    return found


def test_nothing_is_left_open_in_a_resolved_request():
    asked = still_open("algorithms=auto", "baselines=auto")
    assert (asked.algorithms, asked.baselines, asked.dtype, asked.fabric.name) == ("auto",) * 4
    found = on_its_fabric(asked)
    assert (found.dtype, found.fabric.name, found.baselines) == ("float32", "simulator", ())
    assert {"one_shot", "two_shot"} < set(found.algorithms)
    assert as_asked("fabric=nvshmem", "algorithms=[one_shot]").baselines == usual_names_for("all_reduce")
    with refused(AssertionError):
        resolved(asked, asked.fabric)
    for key in ("dtype", "accumulator", "reduction"):
        with refused(AssertionError):
            dataclasses.replace(found, **{key: "auto"})


LEFT_OPEN = [
    "",
    "dtype=bfloat16",
    "dtype=float8_e5m2 reduction=avg",
    *("dtype=float64", "dtype=int32", "dtype=float16 reduction=max", "dtype=float16 accumulator=native"),
    *("op=reduce_scatter dtype=float16", "op=all_gather", "op=send_recv dtype=uint8"),
    "op=broadcast accumulator=none reduction=none",
]


def test_what_is_left_open_suits_op_and_dtype():
    for arguments in LEFT_OPEN:
        found = as_asked(*arguments.split())
        types = (found.dtype, found.accumulator, found.reduction)
        assert {(case.dtype, case.accumulator, case.reduction) for case in cases_of(found)} == {types}
        same_text(f"{arguments}: {', '.join(types)}")


def kernels(op, **algorithms):
    """kernels(op, algorithm={field: value}, ..): the op's kernels are these and no others, like one_shot else."""
    like = {"dtypes": ALL, "accumulators": ("native", "float32", "none"), "placements": ("out_of_place", "in_place")}
    like |= {"reductions": (*REDUCTIONS, "none"), "workspaces": lambda case: ()}
    base = dataclasses.replace(find("all_reduce/one_shot"), op=op, **like)
    return tuple(dataclasses.replace(base, algorithm=name, **fields) for name, fields in algorithms.items())


@pytest.mark.slow
def test_algorithms_are_all_or_those_that_the_simulated_fabric_can_do():
    specs = kernels("all_gather", pull={}, multimem={"needs_multicast": True}, push={})
    every, some = ("pull", "multimem", "push"), ("pull", "push")
    off = "fabric.multicast=false"
    assert names_of(as_asked("op=all_gather", specs=specs)) == every
    assert names_of(as_asked("op=all_gather", off, specs=specs)) == some
    assert names_of(as_asked("op=all_gather", "algorithms=all", off, specs=specs)) == every
    on_gpus = names_of(as_asked("op=all_gather", "fabric=nvshmem", "baselines=none", specs=specs))
    assert on_gpus == every, "whether a switch reduces is known only where the ranks run"
    assert names_of(as_asked("op=all_gather", "algorithms=[push]", specs=specs)) == ("push",)


def test_an_op_for_small_messages_of_one_dtype_needs_neither_size_nor_dtype():
    def refusal(case, arch):
        return Refusal("sizes", "one token") if case.numel != 1 else None

    token = {"dtypes": ("uint32",), "max_size_bytes": 4}
    specs = kernels("barrier", peers=token, multimem={"dtypes": ("uint32",), "refusal": refusal})
    found = [(case.algorithm, case.dtype, case.size_bytes) for case in cases_of(as_asked("op=barrier", specs=specs))]
    assert found == [("peers", "uint32", 4), ("multimem", "uint32", 4)]
    given = cases_of(as_asked("op=barrier", "sizes=[8]", specs=specs))
    assert {case.size_bytes for case in given} == {8}, "as given: refused"
    specs = kernels("barrier", peers=token, other={})
    assert sizes_of(as_asked("op=barrier", specs=specs)) == (1024, 8192, 65536), "one of them takes the usual ones"


@pytest.mark.slow
def test_sizes_are_rounded_down_to_what_ranks_can_divide_and_run_once():
    specs = kernels("all_to_all", push={})
    arguments = ("op=all_to_all", "world_size=3", "dtype=bfloat16", "sizes=[0,5,6,11,12,1000]")
    assert sizes_of(as_asked(*arguments, specs=specs)) == (0, 6, 12, 996)
    assert [case.size_bytes for case in cases_of(as_asked(*arguments, specs=specs))] == [0, 6, 12, 996]
    check_against_catalogue(as_asked(*arguments, specs=specs), specs)
    assert sizes_of(as_asked("sizes=[5,6]", "world_size=3")) == (5, 6), "all_reduce divides nothing"


def test_cases_say_root_offset_and_placement():
    specs = kernels("reduce", pull={})
    asked = ("op=reduce", "root=3", "world_size=4", "offset=2", "placement=in_place", "inputs=edge", "sizes=8")
    wanted = as_asked(*asked, specs=specs)
    check_against_catalogue(wanted, specs)
    (case,) = cases_of(wanted)
    assert case.id == "reduce-pull-float32-float32-sum-n4-8B-in_place-edge-s0-r3-o2"


NEVER = [
    *(f"op=all_gather {one}" for one in ("reduction=sum", "accumulator=native", "dtype=float12", "root=1")),
    *("op=all_to_all placement=in_place", "op=reduce root=2", "op=reduce root=1 world_size=1", "op=reduce dtype=uint8"),
    *(f"op=reduce reduction={one}" for one in ("none", "xor", "min accumulator=float32")),
    "op=reduce dtype=float8_e5m2 accumulator=float16",
]


@pytest.mark.parametrize("arguments", NEVER)
def test_what_an_op_can_never_do_is_refused(arguments):
    specs = [spec for op in ("all_gather", "all_to_all", "reduce") for spec in kernels(op, pull={})]
    with refused(RequestError):
        check_against_catalogue(as_asked(*arguments.split(), specs=specs), specs)


def on_gpus(*arguments):
    return request("fabric=nvshmem", *arguments)


@pytest.mark.slow
def test_baselines_come_after_the_algorithms_on_gpus_and_not_in_the_simulator():
    own = ("one_shot", "two_shot")
    every = ("nccl", "nccl/symmetric", "torch/one_shot", "torch/two_shot", "torch/multimem", "nvshmem")
    every += (*FLASHINFER, *SGLANG)
    assert names_of(request()) == own
    assert names_of(on_gpus()) == own + every
    assert names_of(on_gpus("baselines=none")) == own
    given = names_of(on_gpus("algorithms=[nccl,two_shot]", "baselines=[nvshmem,nccl]"))
    assert given == ("nccl", "two_shot", "nvshmem")
    assert names_of(request("baselines=[nccl]")) == (*own, "nccl"), "asked for by name, it ends REFUSED there"
    cases = cases_of(on_gpus("sizes=[1K,4K]", "baselines=[nccl]"))
    assert [(case.size_bytes, case.algorithm) for case in cases] == [
        (size, name) for size in (1024, 4096) for name in (*own, "nccl")
    ]


def test_a_baselines_case_says_what_runs_and_both_placements_are_cases_of_their_own():
    both = on_gpus("placement=both", "algorithms=[two_shot]", "sizes=[1K]")
    same_text("\n".join(f"{case.algorithm} {case.placement}" for case in cases_of(both)))
    assert len({case.id for case in cases_of(both)}) == 15
    plain = cases_of(on_gpus("algorithms=[two_shot]", "sizes=1K"))
    assert [case.id for case in plain] == [
        case.id for case in cases_of(both) if (case.algorithm, case.placement) not in SECOND
    ]
    assert [case.accumulator for case in plain] == ["float32"] + ["library"] * 12
    cases = cases_of(on_gpus("placement=in_place", "baselines=[torch/one_shot,nvshmem]"))
    assert [case.placement for case in cases][-2:] == ["out_of_place", "in_place"]


SECOND = [("two_shot", "in_place"), ("nvshmem", "in_place")]
"""What runs in both placements runs out of place, where the request leaves it open."""


def test_what_does_not_fit_the_heap_together_takes_turns():
    cases = cases_of(on_gpus("sizes=[256M]", "dtype=bfloat16", "algorithms=[one_shot,two_shot]"))
    names = [case.algorithm for case in cases]
    assert names == ["one_shot", "two_shot", "nccl", "nccl/symmetric", "torch/one_shot", "torch/two_shot", *names[6:]]
    everything = tuple(range(len(cases)))
    assert measured_in_turns(cases, 2 << 30) == [everything]
    for heap_bytes in (1 << 30, 700 << 20):
        turns = measured_in_turns(cases, heap_bytes)
        assert sum(turns, ()) == everything
        assert len(turns) > 1
        assert all(heap_bytes_to_measure([cases[place] for place in turn]) <= heap_bytes for turn in turns)
    assert measured_in_turns(cases, 1) == [(0,), everything[1:7], everything[7:]], "flashinfer's bring their memory"
    assert measured_in_turns(cases[2:3], 1 << 30) == [(0,)]


def test_a_kernel_for_small_messages_takes_no_memory_where_it_refuses():
    """all_reduce/ll beside one_shot at 64 MiB: its inboxes would be 4 n times as large, and it is refused."""
    asked = on_gpus("algorithms=[one_shot,ll]", "sizes=[64M]", "baselines=none", "world_size=8", "fabric.heap_bytes=1G")
    check_against_catalogue(asked)
    both, alone = cases_of(asked), cases_of(on_gpus("algorithms=[one_shot]", "sizes=[64M]", "baselines=none"))
    assert heap_bytes_to_measure(both) - heap_bytes_to_measure(alone) < 1 << 20
    assert heap_bytes_needed(both[1], find("all_reduce/ll")) > 1 << 30, "what it would take"


@pytest.mark.parametrize("op", ["all_reduce", "all_to_all", "send_recv", "barrier"])
def test_both_placements_are_possible_for_every_op_and_those_that_lack_one_end_refused(op):
    wanted = as_asked(f"op={op}", "placement=both", *(["sizes=[4K]"] if op != "barrier" else []))
    check_against_catalogue(wanted)
    check_host_memory(wanted, 1 << 40)
    cases = cases_of(wanted)
    assert {case.placement for case in cases} == {"out_of_place", "in_place"}
    for case in cases:
        spec = find(case.name)
        traits = Traits("simulator", "sm_90a", case.world_size, 1 << 28, True, "", True)
        refusal = refuses(spec, collective(op), case, traits)
        assert (refusal is None) == (case.placement in spec.placements), case.id
        assert refusal is None or refusal.key == "placement"


def test_a_placement_that_a_kernel_lacks_takes_no_memory():
    heap = "fabric.heap_bytes=1G"
    asked = on_gpus("placement=both", "algorithms=[one_shot]", "sizes=[64M]", "baselines=none", heap)
    both, alone = cases_of(asked), cases_of(asked)[:1]
    assert len(both) == 2
    assert heap_bytes_to_measure(both) == heap_bytes_to_measure(alone)
