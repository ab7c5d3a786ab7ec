"""The kernels that a stream's capture holds so far, as the driver knows them: their names and their numbers of blocks.

So a record says what a library ran, whatever the library says: of NCCL, whose blocks are its channels, how many it
took.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from memory.driver import driver_bindings

GRAPH = 2
"""The place of the graph among what cuStreamGetCaptureInfo gives."""

LONGEST = 120
"""Characters of a name that are kept: those of templates go on for thousands."""


@dataclass(frozen=True, slots=True)
class CapturedKernel:
    """A kernel of a graph: its plain name, and the number of blocks of its grid."""

    name: str
    blocks: int


def captured_kernels(stream: int, bindings: Any = None) -> tuple[CapturedKernel, ...]:
    """Return the kernels in the graph that a stream is captured to, each name and grid once, in the graph's order.

    None are named if the driver does not tell: names are worth no failure. bindings stand in for CUDA's.
    """
    try:
        driver = bindings or driver_bindings()
        graph = _answer(driver, driver.cuStreamGetCaptureInfo(driver.CUstream(stream)))[GRAPH]
        count = _answer(driver, driver.cuGraphGetNodes(graph))[-1]
        nodes = _answer(driver, driver.cuGraphGetNodes(graph, count))[0]
        kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        found = [one for one in nodes if _answer(driver, driver.cuGraphNodeGetType(one))[0] == kernel]
        return tuple(dict.fromkeys(_kernel(driver, one) for one in found))
    except Exception:
        return ()


def _kernel(driver: Any, node: Any) -> CapturedKernel:
    """A kernel node's name and grid."""
    (given,) = _answer(driver, driver.cuGraphKernelNodeGetParams(node))
    if int(given.func):
        (name,) = _answer(driver, driver.cuFuncGetName(given.func))
    else:
        (name,) = _answer(driver, driver.cuKernelGetName(given.kern))
    blocks = int(given.gridDimX) * int(given.gridDimY) * int(given.gridDimZ)
    return CapturedKernel(plain_name(name.decode() if isinstance(name, bytes) else str(name)), blocks)


def plain_name(symbol: str) -> str:
    """Return a function's name without what C++ adds to it, as far as it is in no namespace, and no longer than
    LONGEST."""
    mangled = re.match(r"_Z(\d+)(.*)", symbol)
    return (mangled[2][: int(mangled[1])] if mangled else symbol)[:LONGEST]


def _answer(driver: Any, answer: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a call of the driver gave; RuntimeError if it failed."""
    status, *values = answer
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the driver gave {status}")
    return tuple(values)
