"""Tables of launch values: which step a case takes, what it changes, and that its code fits the registers."""

import struct

import pytest

from cases import ops
from cases.case import Case
from kernels import catalogue
from kernels.tuning import ANY_SIZE, Step, Tuning
from tests.golden import refused
from tests.kernels.launching import Launches

ALGORITHMS = ("one_shot", "two_shot", "multimem_one_shot", "multimem_two_shot")
TABLE = Tuning(
    (
        Step(128, 2, 8, "few ranks, small", up_to_bytes=4096, up_to_ranks=2),
        Step(256, 132, 16, "small", up_to_bytes=1 << 16),
        Step(1024, 64, 8, "the rest"),
    )
)
SPILLS = 0x11
"""The attribute of a cubin's .nv.info that holds a kernel's stack frame in bytes."""


def stack_bytes(cubin):
    """The stack frames of a cubin's kernels, read from its ELF sections."""
    (start,), (count, names) = struct.unpack_from("<Q", cubin, 0x28), struct.unpack_from("<HH", cubin, 0x3C)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + 64 * number) for number in range(count)]
    frames = []
    for section in sections:
        begin = sections[names][4] + section[0]
        if cubin[begin : cubin.index(0, begin)] != b".nv.info":
            continue
        at, end = section[4], section[4] + section[5]
        while at < end:
            form, attribute, size = struct.unpack_from("<BBH", cubin, at)
            if form == 4 and attribute == SPILLS:
                frames.append(struct.unpack_from("<II", cubin, at + 4)[1])
            at += 4 + (size if form == 4 else 0)
    return frames


def test_the_first_step_that_fits_is_taken(case_of):
    def reason(size_bytes, world_size):
        return TABLE.step(case_of(size_bytes=size_bytes, world_size=world_size)).reason

    assert reason(4096, 2) == "few ranks, small"
    assert reason(4098, 2) == reason(4096, 4) == reason(1 << 16, 72) == "small"
    assert reason((1 << 16) + 2, 1) == reason(1 << 40, 8) == "the rest"


def test_a_world_of_more_ranks_than_a_step_has_threads_gets_a_thread_for_each(case_of):
    step = Step(64, 2, 8, "the smallest messages")
    tuning = Tuning((step,))
    threads = {ranks: tuning.step(case_of(world_size=ranks)).threads for ranks in (1, 2, 64, 65, 72)}
    assert threads == {1: 64, 2: 64, 64: 64, 65: 96, 72: 96}
    case = case_of(world_size=72)
    assert (tuning.launch(case, 1).threads, tuning.choices(case, 1)["threads"]) == (96, 96)
    assert tuning.step(case_of(world_size=64)) is step


@pytest.mark.slow
@pytest.mark.parametrize("name", ["all_reduce/ll@t64b3l1", "all_gather/ll@t64b3l1", "all_reduce/two_shot@t64b3l1"])
def test_blocks_of_64_threads_are_right_and_race_free(compiled, name):
    spec = catalogue.find(name)
    reduces = ops.collective(spec.op).reduces
    words = ("float32", "sum") if reduces else ("none", "none")
    case = Case(spec.op, spec.algorithm, "bfloat16", *words, 1536, 2)
    work = Launches(spec, case, compiled(spec, case, "sm_90a"), count=3)
    world = work.run(races=True)
    assert (work.seen(), world.findings) == ("right", ())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_tuning_decides_launch_memory_and_code(case_of, algorithm):
    spec = catalogue.retuned(f"all_reduce/{algorithm}", TABLE)
    small, middle, large = (case_of(algorithm, world_size=2, size_bytes=size) for size in (4096, 1 << 16, 1 << 26))
    assert [spec.launch(case).threads for case in (small, middle, large)] == [128, 256, 1024]
    busiest = 2 if algorithm.endswith("two_shot") else 1
    assert [spec.launch(case).blocks for case in (small, middle, large)] == [2 // busiest, 16 // busiest, 64]
    signals = 132 if spec.needs_multicast else 132 * 2
    for case in (small, middle, large):
        sizes = {workspace.name: workspace.numel for workspace in spec.workspaces(case)}
        assert sizes.pop("scratch", 4) == 4
        assert sizes == {"signals": signals, "epochs": 132, "status": 9}
    loads = 1 if spec.needs_multicast else 2
    assert [spec.choices(case)["unroll"] for case in (small, middle, large)] == [8 // loads, 8, 8 // loads]
    assert len({spec.variant(case) for case in (small, middle, large)}) == 3


@pytest.mark.parametrize(("world_size", "rows", "longest"), [(1, 0, 0), (2, 1, 32), (3, 2, 22), (8, 7, 8), (9, 0, 0)])
def test_scratch_has_a_row_of_a_slice_for_each_other_rank_that_pushes(case_of, world_size, rows, longest):
    """64 vectors of 16 bytes; more ranks than 8, or one alone, pull."""
    spec = catalogue.retuned("all_reduce/two_shot", Tuning((Step(128, 4, 8, "a test", push=True),)))
    case = case_of("two_shot", world_size=world_size, size_bytes=1024)
    (scratch,) = [workspace for workspace in spec.workspaces(case) if workspace.name == "scratch"]
    assert (scratch.numel, scratch.zeroed) == (max(4 * rows * longest, 4), False)
    assert spec.choices(case)["push"] == (world_size <= 8)


def test_loads_in_flight_are_shared_by_the_ranks(case_of):
    def unroll(loads_in_flight, world_size):
        tuning = Tuning((Step(512, 1, loads_in_flight, "a test"),))
        found = catalogue.retuned("all_reduce/one_shot", tuning).choices(case_of(world_size=world_size))["unroll"]
        return found

    assert [unroll(16, ranks) for ranks in (1, 2, 3, 4, 8, 9, 72)] == [8, 8, 5, 4, 2, 1, 1]
    assert [unroll(4, ranks) for ranks in (1, 2, 4, 8)] == [4, 2, 1, 1]
    assert unroll(144, 72) == 1


@pytest.mark.parametrize(
    "values",
    [{"threads": 32}, {"threads": 2048}, {"threads": 130}, {"blocks": 0}, {"blocks": 133}, {"loads_in_flight": 0}],
)
def test_a_step_that_no_gpu_can_launch_is_an_error(values):
    with refused():
        Step(**{"threads": 512, "blocks": 8, "loads_in_flight": 8, "reason": "a test", **values})


@pytest.mark.parametrize("last", [{"up_to_bytes": 1 << 40}, {"up_to_ranks": 8}])
def test_a_table_with_a_gap_is_an_error(last):
    with refused():
        Tuning((Step(512, 8, 8, "a test", **last),))
    with refused():
        Tuning(())
    assert Tuning((Step(512, 8, 8, "a test", **last), Step(512, 8, 8, "the rest"))).steps[1].up_to_bytes == ANY_SIZE


@pytest.mark.parametrize(
    ("algorithm", "option", "opcode"),
    [
        ("one_shot", ("peer_loads", "no_allocate"), "ld.global.L1::no_allocate.v4.b32"),
        ("two_shot", ("peer_loads", "relaxed"), "ld.relaxed.sys.global.v4.b32"),
        ("one_shot", ("entry_signal", "relaxed"), "st.relaxed.sys.global.u32"),
        ("one_shot", ("exit_signal", "relaxed"), "st.relaxed.sys.global.u32"),
        ("two_shot", ("entry_signal", "relaxed"), "st.relaxed.sys.global.u32"),
    ],
)
def test_trials_are_off_unless_asked_for(case_of, compiled, opcodes, algorithm, option, opcode):
    name, case = f"all_reduce/{algorithm}", case_of(algorithm, world_size=4)
    spec = catalogue.find(name)
    trial = catalogue.retuned(name, Tuning(catalogue.tuning_of(name).steps, (option,)))
    assert trial.variant(case) != spec.variant(case)
    assert "=".join(option) in trial.variant(case)
    assert opcodes(compiled(trial, case, "sm_90a").ptx)[opcode] > 0
    assert opcodes(compiled(spec, case, "sm_90a").ptx)[opcode] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", catalogue.NAMES)
def test_no_step_of_the_catalogue_spills(fit_case, compiled, name):
    spec, tuning = catalogue.find(name), catalogue.tuning_of(name)
    kinds = [("bfloat16", "float32"), ("float8_e4m3fn", "float32")]
    if not ops.collective(spec.op).reduces:
        kinds = [("uint32", "none")] if spec.op == "barrier" else [("bfloat16", "none")]
    for step in tuning.steps:
        for world_size in (2, 4, 8) if name == "all_reduce/two_shot" else (4,):
            size_bytes = min(step.up_to_bytes, spec.max_size_bytes or 1 << 40)
            for dtype, accumulator in kinds:
                arch = "sm_100a" if spec.needs_multicast and dtype.startswith("float8") else "sm_90a"
                if arch == "sm_100a":
                    accumulator = "float16"
                changes = {} if spec.op == "barrier" else {"size_bytes": size_bytes}
                case = fit_case(spec, dtype=dtype, accumulator=accumulator, world_size=world_size, **changes)
                # A kernel whose pieces call a function has a frame for each.
                assert set(stack_bytes(compiled(spec, case, arch).cubin)) == {0}, case.id


def test_a_step_that_spills_is_noticed(case_of, compiled):
    spec = catalogue.retuned("all_reduce/two_shot", Tuning((Step(1024, 1, 16, "more than 64 registers hold"),)))
    assert stack_bytes(compiled(spec, case_of("two_shot", world_size=2), "sm_90a").cubin)[0] > 0
