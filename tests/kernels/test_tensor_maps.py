"""Tensor maps that CuTe DSL's host code makes: what the simulator reads in them, and kernels that use them."""

import pytest
import torch

import symlab
from kernels.functions import CallArgument, compiled_callable
from simulator.memory.tensor_map import decoded
from tests.kernels import tensor_map_functions as functions
from tests.simulator.isa.tensor_maps import Map, encoded

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64", "uint8": "u8", "int64": "u64"}
CASES = [
    ("float32", (64,), (1,), (32,), 0),
    ("float16", (64, 32), (1, 72), (32, 8), 64),
    ("bfloat16", (60, 30), (1, 64), (64, 8), 128),
    ("uint8", (64, 32, 16), (1, 64, 2048), (32, 8, 4), 32),
    ("float64", (1 << 20, 1 << 20, 4), (1, 1 << 30, 1 << 35), (16, 8, 2), 128),
    ("int64", (64, 32, 16, 5), (1, 64, 2048, 32768), (16, 8, 4, 2), 0),
    ("float32", (64, 32, 16, 5, 3), (1, 64, 2048, 32768, 163840), (32, 8, 4, 2, 3), 128),
]


@pytest.mark.parametrize(("dtype", "shape", "strides", "box", "swizzle"), CASES, ids=str)
def test_the_simulator_reads_what_the_host_code_writes(dtype, shape, strides, box, swizzle):
    function = functions.with_a_map(shape, strides, box, swizzle)
    made = compiled_callable(function, "launched", [CallArgument("address", dtype)], "sm_90a")
    launch = made.host.launch([bytes(8)], [True])
    (argument,) = launch.arguments([1 << 46])
    element, size = DTYPES[dtype], torch.empty(0, dtype=getattr(torch, dtype)).element_size()
    stride_bytes = tuple(one * size for one in strides[1:])
    expected = Map(element, shape, stride_bytes, box, (1,) * len(box), swizzle)
    assert decoded(argument.value[:64]) == decoded(encoded(expected, 1 << 46)[:64])
    found = decoded(argument.value[:64])
    assert (found.element, found.sizes, found.strides, found.box) == (element, shape, stride_bytes, box)
    assert (found.swizzle_bytes, found.address, found.nan) == (swizzle, 1 << 46, False)
    assert argument.value[64:] == bytes(64), "what the host code leaves is no garbage"


@pytest.mark.parametrize("kind", ["tensor", "dynamic_tensor"])
def test_a_kernel_that_loads_and_stores_by_swizzled_maps(kind):
    """Its threads find the elements where CuTe's own swizzled layout says; the tensor's edges cut tiles."""
    given = torch.arange(40 * 48, dtype=torch.float32).reshape(40, 48)
    how = {"buffers": {"given": given, "out": torch.zeros(40, 48)}, "arguments": [(kind, "given"), (kind, "out")]}
    for order in ({}, {"schedule": "random", "seeds": 2, "memory": "weak"}):
        done = symlab.simulate(functions.doubled, ranks=2, **how, **order)
        assert all(torch.equal(found, given * 2) for found in done.outputs["out"])
    checked = symlab.simulate(functions.doubled, ranks=1, **how, races=True, seeds=1)
    assert checked.findings == ()
