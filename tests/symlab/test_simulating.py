"""symlab.simulate and World.launch: what a brought kernel gets, gives and says when it fails."""

import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import symlab
from memory.fabric import Executable, Launch, Place, Traits
from symlab.launching import Asked, adapted, brought_launch, run_on_rank
from symlab.simulating import Simulation
from symlab.worlds import Launched
from tests.golden import refused, same_text
from tests.symlab.dsl_kernels import scaled, twice

HERE = Path(__file__).parent
SCALE, SUM, WAIT, TICKET = (HERE / f"{name}.ptx" for name in ("scale", "sum", "wait", "ticket"))
FLAG = {"flag": (1, torch.int32, 0)}


def scale(**how):
    usual = {"ranks": 2, "grid": 1, "block": 32, "buffers": {"data": torch.ones(32)}, "seeds": 2}
    usual |= {"arguments": ["data", ("f32", 2.5), ("u32", 32)]}
    return symlab.simulate(**{"kernel": SCALE, **usual, **how})


def echo(size_bytes):
    """PTX that stores its one struct of size_bytes to a buffer."""
    moves = "".join(
        f"ld.param.b32 %r1, [given+{at}]; st.global.b32 [%rd1+{at}], %r1;\n" for at in range(0, size_bytes, 4)
    )
    return (
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        f".visible .entry echo(.param .u64 out, .param .align 16 .b8 given[{size_bytes}]) {{\n"
        f".reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.u64 %rd1, [out];\n{moves} ret; }}\n"
    )


def echoed(size_bytes, argument, **buffers):
    how = {"buffers": {"out": (size_bytes, torch.uint8), **buffers}, "arguments": ["out", argument]}
    done = scale(kernel=echo(size_bytes), block=1, schedule="fair", **how)
    return [out.numpy().tobytes() for out in done.outputs["out"]]


# What comes out


def test_a_path_a_text_and_an_executable_give_the_same():
    text = SCALE.read_text(encoding="utf-8")
    compiled = Executable("mine", "scale", "sm_90", text, "sha256:0")
    for kernel in (SCALE, str(SCALE), text, compiled):
        done = scale(kernel=kernel, arguments=["data", ("f32", 2.5), ("u32", 31)], seeds=1)
        assert [out.tolist() for out in done.outputs["data"]] == [[2.5] * 31 + [1.0]] * 2


def test_each_seed_is_a_run_of_its_own():
    done = scale(seeds=[3, 9])
    assert [run.seed for run in done.runs] == [3, 9]
    assert all(run.counts["instructions"] > 0 for run in done.runs)
    assert done.counts == done.runs[0].counts
    assert len(scale(schedule="fair", seeds=20).runs) == 1
    assert len(scale(schedule="fair", memory="weak", seeds=3).runs) == 3


@pytest.mark.slow
def test_outputs_that_depend_on_the_order_are_not_given_as_one():
    buffers = {"counter": (1, torch.int32, 0), "slots": (4, torch.int32)}
    arguments = [("peer", "counter", 0), ("peer", "slots", 0), ("u32", "rank")]
    done = symlab.simulate(TICKET, ranks=4, grid=1, block=1, buffers=buffers, arguments=arguments, seeds=20)
    found = {tuple(run.outputs["slots"][0].tolist()) for run in done.runs}
    assert len(found) > 1
    assert all(sorted(one) == [0, 1, 2, 3] for one in found)
    with refused():
        _ = done.outputs


def test_buffers_beyond_the_heap_are_refused_before_any_is_made():
    def fill(rank, ranks):
        raise AssertionError("it was made")

    buffers = {"data": (32, torch.float32), "large": ((1 << 20, 1 << 11), torch.float32, fill)}
    with refused():
        scale(buffers=buffers)
    with refused():
        scale(heap_bytes="4K", buffers={"data": torch.ones(3200)})
    with symlab.world(ranks=2) as opened, refused():
        opened.launch(SCALE, grid=1, block=32, buffers=buffers, arguments=["data", ("f32", 2.5), ("u32", 32)])


def test_memory_that_was_never_written_reads_as_all_bits():
    done = scale(buffers={"data": torch.ones(32), "other": (3, torch.int32)})
    assert done.outputs["other"][1].tolist() == [-1] * 3
    assert done.unwritten == {"data": [0, 0], "other": [3, 3]}


def test_elements_that_only_some_seeds_write_count_as_unwritten():
    first, second = ({"data": [3, 0]}, {"data": [1, 2]})
    done = Simulation(tuple(Launched({}, {}, seed, counts) for seed, counts in enumerate((first, second))))
    assert done.unwritten == {"data": [3, 2]}


@pytest.mark.slow
def test_a_kernel_that_writes_a_part_leaves_the_other_elements_unwritten():
    how = {"buffers": {"out": (5, "int32")}, "arguments": ["out", ("bytes", b"\xff" * 8)]}
    done = scale(kernel=echo(8), block=1, **how)
    assert done.outputs["out"][1].tolist() == [-1] * 5
    assert done.unwritten == {"out": [3, 3]}


def test_a_compiled_kernel_of_a_case_brings_its_grid_and_block():
    compiled = symlab.compile(symlab.case("broadcast/push", size_bytes=64, ranks=2))
    with refused():
        symlab.simulate(compiled, ranks=2, buffers={}, arguments=[], seeds=1)


def test_a_cute_function_runs_with_pointers_of_the_buffers_dtypes():
    buffers = {"x": (512, "float32", "normal"), "y": (512, torch.float32, 0)}
    arguments = ["x", "y", ("s32", 500), ("f32", 3.0), ("s32", 4)]
    done = symlab.simulate(scaled, ranks=2, grid=4, buffers=buffers, arguments=arguments, seeds=2)
    for x, y in zip(done.outputs["x"], done.outputs["y"], strict=True):
        assert torch.equal(y[:500], x[:500] * 3)
        assert not y[500:].any()
    assert not torch.equal(*done.outputs["x"])


# Buffers


def test_contents_are_by_rank():
    given = [np.full(32, 1.0, np.float32), torch.full((32,), 2.0)]
    assert [float(out[0]) for out in scale(buffers={"data": given}).outputs["data"]] == [2.5, 5.0]
    for fill, wanted in (("rank", [0.0, 2.5]), (4, [10.0, 10.0]), (lambda r, n: torch.full((32,), float(n)), [5, 5])):
        done = scale(buffers={"data": (32, torch.float32, fill)})
        assert [float(out[31]) for out in done.outputs["data"]] == wanted


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float8_e4m3fn", "int32", "uint64", "uint8"])
def test_random_content_is_the_same_each_time_and_differs_between_ranks(dtype):
    how = {"buffers": {"data": torch.ones(32), "other": (64, dtype, "random")}}
    first, again = (scale(**how).outputs["other"] for _ in range(2))
    raw = [[one.view(torch.uint8) for one in outputs] for outputs in (first, again)]
    assert all(torch.equal(one, other) for one, other in zip(*raw, strict=True))
    assert not torch.equal(*raw[0])


ONES, COMPLEX, SPARSE = torch.ones(32), torch.ones(32, dtype=torch.complex64), torch.ones(32).to_sparse()
TUPLES = [
    (32, torch.float32, "noise"),
    (32, torch.float32, 1, 2),
    (1.5, torch.float32),
    (0, torch.float32),
    (32, torch.int32, "normal"),
    (32, torch.uint8, 300),
    (32, torch.float32, lambda rank, ranks: torch.ones(3)),
]


@pytest.mark.parametrize("data", [5, [ONES], [ONES, torch.ones(31)], COMPLEX, SPARSE, *TUPLES])
def test_a_buffer_that_is_not_possible_is_named(data):
    with refused(ValueError, r"\.py:\d+"):
        scale(buffers={"data": data})


# Arguments


def test_a_table_of_peers_reaches_all_ranks():
    data = [torch.full((40,), 2.0**rank) for rank in range(4)]
    buffers = {"data": data, "out": (40, torch.float32)}
    arguments = [("peers", "data"), "out", ("u32", "world_size"), ("u32", 40)]
    done = symlab.simulate(SUM, ranks=4, grid=2, block=32, buffers=buffers, arguments=arguments, seeds=3)
    assert [out.tolist() for out in done.outputs["out"]] == [[15.0] * 40] * 4


def test_a_struct_is_laid_out_as_c_does():
    members = [("u32", 7), ("f64", 0.5), ("s32", "rank"), ("bytes", b"abc"), ("struct", [("u32", 1), ("s64", -2)])]
    found = echoed(40, ("struct", members))
    assert found == [struct.pack("<I4xdi3s1xI4xq", 7, 0.5, rank, b"abc", 1, -2) for rank in range(2)]


def test_a_struct_by_offsets_has_what_is_given_there_and_zeros_between():
    members = {8: {"u8": "rank"}, 0: ("s16", -2), 24: ("struct", {4: ("u32", 7), "size": 12}), "size": 40}
    found = echoed(40, {"struct": members})
    assert found == [struct.pack("<h6xB19xI8x", -2, rank, 7) for rank in range(2)]


def test_addresses_of_all_ranks_by_value_begin_where_it_is_said():
    members = {"struct": [{"addresses": ["data+8", 3]}, {"peer": ["data", 1]}, "data+4"]}
    found = [struct.unpack("<5Q", one) for one in echoed(40, members, data=(16, torch.int8, 0))]
    for rank, one in enumerate(found):
        assert one[1] - one[3] == 8
        assert one[2] == 0
        assert one[4] - one[rank] == -4


def test_all_ways_to_launch_take_the_same_arguments():
    """Also explore, and the worlds that the fixture of pytest opens."""
    how = {"grid": 1, "block": 1, "buffers": {"out": (8, torch.uint8)}}
    how["arguments"] = ["out", {"struct": {0: {"u32": 258}, 4: "rank"}}]
    expected = [torch.tensor([2, 1, 0, 0, rank, 0, 0, 0], dtype=torch.uint8) for rank in range(2)]
    with symlab.world(ranks=2) as world:
        launched = world.launch(echo(8), **how).outputs["out"]
    assert all(torch.equal(one, right) for one, right in zip(launched, expected, strict=True))
    explored = symlab.explore(echo(8), ranks=2, **how, expected={"out": expected}, seeds=1, processes=1)
    assert explored.found is None


def test_a_multicast_address_needs_a_switch_that_has_it():
    how = {"arguments": [("multicast", "data"), ("f32", 1.0), ("u32", 0)]}
    assert len(scale(**how).runs) == 2
    with refused(ValueError, r"rank \d"):
        scale(**how, multicast=False)


def test_local_buffers_are_not_for_other_ranks():
    scale(local=["data"])
    for argument in (("peers", "data"), ("peer", "data", 0), ("multicast", "data"), ("struct", [("peer", "data", 0)])):
        with refused():
            scale(local=["data"], arguments=[argument, ("f32", 1.0), ("u32", 0)])
    with refused():
        scale(local=["date"])


def test_only_a_local_buffer_may_be_read_through_the_read_only_cache():
    text = SCALE.read_text(encoding="utf-8").replace("ld.global.f32", "ld.global.nc.f32")
    with refused(symlab.WorldFailure):
        scale(kernel=text, seeds=1)
    assert scale(kernel=text, seeds=1, local=["data"]).outputs["data"][0].tolist() == [2.5] * 32


GOOD = ["data", ("f32", 1.0), ("u32", 1)]


@pytest.mark.parametrize(
    "arguments",
    [
        GOOD[:2],
        [*GOOD, ("u32", 1)],
        *([first, *GOOD[1:]] for first in ("date", ("peer", "data", 2))),
        *([GOOD[0], second, GOOD[2]] for second in (1.0, ("f16", 1.0), ("f64", 1.0), ("u32", 1))),
        *([*GOOD[:2], third] for third in (("u32", -1), ("u32", 0.5), ("f32", 1.0))),
        lambda rank: [*GOOD[:2], ("u32" if rank else "s32", 1)],
        lambda rank: {}["boo"],
        lambda rank: None,
    ],
)
def test_arguments_that_do_not_fit_are_named(arguments):
    with refused():
        scale(arguments=arguments)


@pytest.mark.parametrize("declared", ["u32", "s32", "b32"])
def test_a_whole_number_is_no_float(declared):
    """The bits of a float would be taken for a number of 1,065,353,216 or so."""
    text = SCALE.read_text(encoding="utf-8").replace(".param .u32 count", f".param .{declared} count")
    with refused():
        scale(kernel=text, ranks=1, arguments=["data", ("f32", 2.0), ("f32", 32.0)])
    done = scale(kernel=text, ranks=1, arguments=["data", ("f32", 2.0), ("s32", 32)])
    assert done.outputs["data"][0].tolist() == [2.0] * 32


# The kernel


HEAD = ".version 8.0\n.target sm_90\n"
IMPOSSIBLE = {
    "kernel": [HERE / "none.ptx", HEAD, 5, "", "a\0b.ptx", f"\ufeff{HEAD}", len],
    "seeds": [0, "3", True, [-1]],
    "buffers": [{1: ONES}, [ONES], {"data": np.array(["a"])}, {}, {"data": (1 << 27, "float32")}],
    **{"arguments": ["data", None], "variables": [lambda rank: 1 // 0], "local": [None, "data"]},
    **{"deadline_s": [-1, "9"], "grid": [0], "block": [0, None], "shared_bytes": [1 << 20], "ranks": ["2", 0, 99]},
    **{"entry": ["scaled"], "arch": ["sm_x"], "schedule": ["wild"]},
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in IMPOSSIBLE.items() for value in values])
def test_a_call_that_is_not_possible_is_one_line(key, value):
    with refused(ValueError, r"\x00", r"error\[CALL.*"):
        scale(**{key: value})


def test_an_endless_loop_ends_at_the_step_budget_which_is_named_as_the_argument():
    ptx = ".version 8.0\n.target sm_90\n.entry endless() {\nLOOP:\n bra LOOP;\n}\n"
    with pytest.raises(symlab.WorldFailure) as caught:
        symlab.simulate(ptx, ranks=2, grid=1, block=1, buffers={}, arguments=[], schedule="fair", step_budget=300)
    failure = caught.value
    same_text(failure.message)
    assert failure.message == str(failure)
    assert (failure.status, failure.block, failure.thread, failure.ptx_line) == ("TIMEOUT", 0, 0, 5)


@pytest.mark.slow
def test_one_of_several_kernels_is_named_by_its_entry():
    text = SCALE.read_text(encoding="utf-8")
    both = text + text[text.index(".visible") :].replace("scale(", "other(").replace("done", "end")
    with refused():
        symlab.simulate(both, grid=1, block=1, buffers={}, arguments=[])
    assert scale(kernel=both, entry="other").outputs["data"][0].tolist() == [2.5] * 32


def test_a_cute_function_that_launches_two_kernels_is_refused():
    arguments = ["x", "x", ("s32", 1), ("f32", 1.0)]
    with refused():
        symlab.simulate(twice, grid=1, block=128, buffers={"x": torch.ones(512)}, arguments=arguments)
    with refused():
        symlab.simulate(twice, grid=1, block=128, buffers={}, arguments=[("bytes", b"1234")])


# Failures


def test_a_fault_says_where_in_words_and_as_attributes():
    with pytest.raises(symlab.WorldFailure) as caught:
        scale(buffers={"data": [torch.ones(40), torch.ones(40)]}, arguments=["data", ("f32", 1.0), ("u32", 64)], grid=2)
    failure = caught.value
    line = 1 + SCALE.read_text(encoding="utf-8").splitlines().index("  ld.global.f32 %f2, [%rd3];")
    assert (failure.status, failure.seed, failure.block, failure.thread) == ("FAILED", 0, 1, 8)
    assert (failure.ptx_line, failure.source) == (line, None)
    assert failure.places == (Place(failure.rank or 0, 1, 8, line),)
    for text in (f"rank {failure.rank}, block 1, thread 8", f"PTX line {line}", "seed 0; seeds=[0] repeats it"):
        assert text in str(failure)


def test_a_deadlock_says_who_waits_where():
    with refused(symlab.WorldFailure) as caught:
        symlab.simulate(WAIT, ranks=2, grid=1, block=2, buffers=FLAG, arguments=["flag", ("u32", "rank")], seeds=[5])
    failure = caught.value
    line = 1 + WAIT.read_text(encoding="utf-8").splitlines().index("  ld.acquire.sys.global.u32 %r2, [%rd1];")
    assert (failure.status, failure.seed, failure.source) == ("DEADLOCK", 5, "wait.cu:7")
    assert failure.places == tuple(Place(0, 0, thread, line, "wait.cu:7") for thread in range(2))


# Worlds


def test_a_world_launches_again_and_again():
    with symlab.world(ranks=2) as world:
        for factor in (2.0, 3.0):
            arguments = ["data", ("f32", factor), ("u32", 32)]
            done = world.launch(SCALE, grid=1, block=32, buffers={"data": torch.ones(32)}, arguments=arguments)
            assert done.outputs["data"][1].tolist() == [factor] * 32
            assert done.seed is None
        assert world.healthy


def test_a_function_is_compiled_for_the_worlds_gpus():
    arguments = ["x", "x", ("s32", 512), ("f32", 2.0), ("s32", 4)]
    with symlab.world(ranks=1, arch="sm_100a") as world:
        done = world.launch(scaled, grid=4, buffers={"x": torch.ones(512)}, arguments=arguments)
    assert done.outputs["x"][0].tolist() == [2.0] * 512


FOURFOLD = [("f32", 4.0), ("u32", "world_size")]


def brought(ranks=2, **how):
    """What ranks run to launch the kernel."""
    usual = {"buffers": {"data": torch.ones(2)}, "arguments": ["data", *FOURFOLD]}
    return brought_launch(Asked(SCALE, grid=1, block=2, **{**usual, **how}), ranks)


def test_the_same_launch_reaches_a_fabric_of_gpus_with_cubins_or_ptx(dictionary_world, on_ranks):
    """The per-rank program asks nothing of a fabric that is not in the contract."""
    world = dictionary_world(2)
    seen = []

    def kernel(fabric, target, factor, count):
        world.at(target, 8).view(torch.float32).mul_(factor)
        seen.append((fabric.traits.name, Launch(1, 2), ()))
        assert count == 2

    world.kernels["scale"] = kernel
    work = brought(local=["data"])
    outcomes = on_ranks(world, lambda fabric: run_on_rank(fabric, work))
    assert [one.outputs["data"].tolist() for one in outcomes] == [[4.0, 4.0]] * 2
    assert len(seen) == 2


def test_a_peer_in_reach_is_given_where_another_is_not(on_ranks):
    from tests.memory.nvshmem_stand_in import StandInWorld

    world = StandInWorld(3, unmapped=[(0, 2)])
    seen = set()
    world.kernels["scale"] = lambda fabric, *_: seen.add(fabric.rank)
    work = brought(3, arguments=[("peer", "data", 1), *FOURFOLD])
    on_ranks(world, lambda fabric: run_on_rank(fabric, work))
    assert seen == {0, 1, 2}


def test_what_is_launched_can_be_sent_to_a_process():
    import pickle

    buffers = {"data": (2, torch.float32, lambda rank, ranks: torch.ones(2))}
    work = brought(buffers=buffers, arguments=lambda rank: ["data", ("f32", float(rank)), ("u32", 2)])
    back = pickle.loads(pickle.dumps(work))
    assert back.steps == work.steps
    assert torch.equal(back.contents["data"][1], torch.ones(2))
    h200 = Traits("nvshmem", "sm_90a", 2, 1 << 30, multicast=True)
    assert adapted(back, h200).arch == "sm_90a"


# Limits of a GPU

PLACES = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry places(.param .u64 count, .param .u32 all) {
  .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %d<2>;
  ld.param.u64 %d1, [count]; ld.param.u32 %r2, [all];
  mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra MEET;
  atom.add.release.gpu.global.u32 %r3, [%d1], 1;
SPIN:
  ld.acquire.gpu.global.u32 %r4, [%d1]; setp.lt.u32 %p2, %r4, %r2; @%p2 bra SPIN;
MEET:
  bar.sync 0; ret;
}
"""
"""Each block counts itself, and waits until so many have."""


@pytest.fixture
def few(tmp_path):
    """The path of a GPU of two multiprocessors."""
    path = tmp_path / "few.yaml"
    path.write_text("like: h100\nlimits: {multiprocessors: {value: 2, source: 'assumed: for a test'}}\n")
    return str(path)


def places(gpu, wanted, grid=9, **how):
    usual = {"ranks": 2, "block": 1024, "arguments": ["count", ("u32", wanted)], "seeds": 4}
    return symlab.simulate(PLACES, **{**usual, **how}, grid=grid, buffers={"count": (1, torch.int32, 0)}, gpu=gpu)


def test_launches_that_never_fit_are_refused(few):
    with refused(ValueError, r"(?<=ValueError: )(rank \d: )?"):
        places(few, 4, cooperative=True)
    assert places(few, 4, grid=4, cooperative=True).outputs["count"][0].tolist() == [4]
    assert places(None, 9, cooperative=True).outputs["count"][0].tolist() == [9]
    with refused():
        places("h300", 4)
    with refused():
        places({"name": "few"}, 4)
