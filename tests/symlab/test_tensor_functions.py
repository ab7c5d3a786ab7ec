"""CuTe DSL functions with tensors, through symlab.simulate: shapes as constants and read at run time, lists of peers'
tensors, constants, launches that the function computes."""

import dataclasses
import pickle

import pytest
import torch

import symlab
from symlab.launching import Asked, brought_launch
from tests.golden import refused
from tests.symlab import tensor_kernels


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tensor", "dynamic_tensor"])
def test_a_reduction_through_shared_memory_with_a_constant(kind):
    rows = [torch.randint(-9, 9, (6, 300), generator=torch.Generator().manual_seed(rank)).float() for rank in range(2)]
    buffers, arguments = {"rows": rows, "sums": (6, "float32")}, [(kind, "rows"), (kind, "sums"), ("constexpr", 0.5)]
    done = symlab.simulate(tensor_kernels.row_sums, ranks=2, buffers=buffers, arguments=arguments, seeds=3)
    for rank in range(2):
        assert torch.equal(done.outputs["sums"][rank], rows[rank].sum(1) * 0.5)


@pytest.mark.parametrize("kind", ["tensors", "dynamic_tensors", "peers"])
@pytest.mark.parametrize(("ranks", "dtype"), [(2, torch.float32), (4, torch.bfloat16), (8, torch.float16)])
def test_an_all_reduce_over_the_tensors_of_all_ranks(kind, ranks, dtype):
    data = [torch.randn(1000, generator=torch.Generator().manual_seed(rank)).to(dtype) for rank in range(ranks)]
    expected = torch.zeros(1000)
    for one in data:
        expected = expected + one.float()
    how = {"buffers": {"data": data, "out": (1000, dtype)}, "arguments": [(kind, "data"), "out"]}
    done = symlab.simulate(tensor_kernels.total, ranks=ranks, seeds=2, **how)
    assert all(torch.equal(out, expected.to(dtype)) for out in done.outputs["out"])


@pytest.mark.slow
def test_a_tuple_of_tensors_and_one_rank_s_tensor():
    data = [torch.full((64,), float(rank + 1)) for rank in range(2)]
    how = {"buffers": {"data": data, "out": (64, "float32")}, "arguments": [("tensors", "data"), "out"]}
    done = symlab.simulate(tensor_kernels.total_of_pair, ranks=2, seeds=1, **how)
    assert all(torch.equal(out, torch.full((64,), 3.0)) for out in done.outputs["out"])
    buffers = {"data": [one.view(8, 8) for one in data], "out": ((8, 8), "float32")}
    arguments = [("peer", "data", 1), "data", "out"]
    done = symlab.simulate(tensor_kernels.added, ranks=2, buffers=buffers, arguments=arguments, seeds=1)
    assert [float(out[0, 0]) for out in done.outputs["out"]] == [3.0, 4.0]


def test_the_function_s_own_launch_is_taken_with_its_cluster():
    buffers = {"out": (128, "int32")}
    work = brought_launch(Asked(tensor_kernels.in_a_cluster, buffers, ["out"]), 2)
    launch = work.steps[0].launch
    assert (launch.grid, launch.block, launch.cluster) == ((4, 1, 1), (32, 1, 1), (2, 1, 1))


def test_a_callable_object_has_its_constants():
    buffers = {"out": ((5, 64), "float32")}
    done = symlab.simulate(tensor_kernels.Filled(2.5), ranks=2, buffers=buffers, arguments=["out"], seeds=1)
    assert torch.equal(done.outputs["out"][1], torch.full((5, 64), 2.5))


def test_a_launch_is_sent_to_other_processes_without_the_compiler():
    buffers = {"data": (100, "float32"), "out": (100, "float32")}
    work = brought_launch(Asked(tensor_kernels.total, buffers, [("tensors", "data"), "out"]), 2)
    again = pickle.loads(pickle.dumps(dataclasses.replace(work, contents={})))
    places = {("data", 0): 0x1000, ("data", 1): 0x2000, ("out", None): 0x3000}
    arguments = again.steps[0].executable.host.arguments(1, lambda one: places[one.argument.buffer, one.peer])
    assert [int.from_bytes(one.value, "little") for one in arguments] == [0x1000, 0x2000, 0x3000]


DATA = {"data": (64, "float32"), "out": (64, "float32"), "numbers": (128, "int32")}


@pytest.mark.parametrize(
    "how",
    [
        {"grid": 2},
        {"block": (64, 1, 1)},
        {"cluster": 2, "grid": 2},
        {"dependent": True},
        {"cooperative": True},
        {"arguments": [("tensor", "data"), "out"]},
        {"arguments": [("tensors", "data"), ("tensors", "out")]},
        {"arguments": [("tensors", "none"), "out"]},
        {"arguments": [("tensors", "data"), "out"], "local": ["data"]},
        {"arguments": lambda rank: [("tensors", "data"), ("dynamic_tensor" if rank else "tensor", "out")]},
        {"arguments": [("tensors", "data")]},
        {"kernel": tensor_kernels.none, "arguments": [("tensor", "numbers"), ("s32", 0)]},
        {"kernel": tensor_kernels.row_sums, "arguments": ["data", "out", ("constexpr", "rank")]},
        {"kernel": tensor_kernels.row_sums, "arguments": ["data", "out", ("u32", "rank")]},
    ],
)
def test_what_a_function_does_not_take_is_one_line(how):
    usual = {"kernel": tensor_kernels.total, "ranks": 2, "buffers": DATA, "seeds": 1}
    values = {**usual, "arguments": [("tensors", "data"), "out"], **how}
    with refused(ValueError, r"error\[CALL.*"):
        symlab.simulate(values.pop("kernel"), **values)


def test_ptx_takes_no_tensor():
    ptx = ".version 8.0\n.target sm_90\n.address_size 64\n.entry one(.param .u64 out) { ret; }\n"
    with refused():
        symlab.simulate(ptx, ranks=2, grid=1, block=1, buffers=DATA, arguments=[("tensor", "out")])
