"""Names of captured kernels, from a driver that stands in for CUDA's."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from runner.timing.kernel_names import LONGEST, CapturedKernel, captured_kernels, plain_name


@dataclass(frozen=True)
class Node:
    kind: str
    func: int = 0
    kern: int = 0
    gridDimX: int = 1
    gridDimY: int = 1
    gridDimZ: int = 1


NAMES = {7: b"_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE", 8: b"one_shot_kernel"}


class Driver:
    """CUDA's answers for a stream whose capture has these nodes; failing names a call that fails."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)
    CUgraphNodeType = SimpleNamespace(CU_GRAPH_NODE_TYPE_KERNEL="kernel")

    def __init__(self, nodes, failing=""):
        self.nodes = nodes
        self.failing = failing

    def CUstream(self, number):
        return f"stream {number}"

    def __getattribute__(self, name):
        if name.startswith("cu") and name == object.__getattribute__(self, "failing"):
            return lambda *given: (1,)
        return object.__getattribute__(self, name)

    def cuStreamGetCaptureInfo(self, stream):
        assert stream == "stream 5"
        return 0, "active", 1, "the graph", [], [], 0

    def cuGraphGetNodes(self, graph, count=0):
        assert graph == "the graph"
        return 0, self.nodes[:count], len(self.nodes)

    def cuGraphNodeGetType(self, node):
        return 0, node.kind

    def cuGraphKernelNodeGetParams(self, node):
        return 0, node

    def cuFuncGetName(self, function):
        return 0, NAMES[function]

    def cuKernelGetName(self, kernel):
        return 0, NAMES[kernel]


NODES = [
    Node("kernel", func=7, gridDimX=8),
    Node("copy"),
    Node("kernel", kern=8, gridDimX=4, gridDimY=3, gridDimZ=2),
    Node("kernel", func=7, gridDimX=8),
]


def test_each_kernel_is_named_once_in_the_graphs_order():
    expected = (CapturedKernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 8), CapturedKernel("one_shot_kernel", 24))
    assert captured_kernels(5, Driver(NODES)) == expected
    assert captured_kernels(5, Driver([])) == ()


def test_a_kernel_of_two_grids_is_there_twice():
    nodes = [Node("kernel", func=7, gridDimX=blocks) for blocks in (8, 16, 8)]
    assert [one.blocks for one in captured_kernels(5, Driver(nodes))] == [8, 16]


@pytest.mark.parametrize("failing", [name for name in vars(Driver) if name.startswith("cu")])
def test_a_driver_that_does_not_tell_costs_nothing(failing):
    assert captured_kernels(5, Driver(NODES, failing)) == ()


def test_names_are_plain_and_no_longer_than_pages_can_show():
    assert plain_name("_Z3fooPi") == "foo"
    assert plain_name("ncclSymkDevKernel") == "ncclSymkDevKernel"
    assert len(plain_name("_ZN" + "a" * 500)) == LONGEST
