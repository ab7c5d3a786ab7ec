"""NCCL's device functions through nccl4py: the kernels of sources/nccl_kernels.py.

NCCL addresses a rank's memory as base + rank * stride, with the stride in units of 4 GiB, so heaps here are that far
apart. Its communicator is passed by value (ncclDevComm, impl/comm__types.h of NCCL 2.32); a window is a pointer to a
ncclWindow_vidmem (impl/core__types.h).
"""

import torch

from memory.placing import SIMULATED
from tests.foreign.cases import Foreign, exact, random_rows
from tests.foreign.cuda_cases import of_cuda
from tests.foreign.environment import compiled

SOURCE = "nccl_kernels.py"
BLOCKS, THREADS = 4, 64
NUMEL = BLOCKS * THREADS
HEAP_BYTES = (1 << 32) - SIMULATED.gap_bytes
"""A heap and the gap behind it are 4 GiB."""
STRIDE = [("u32", 1), ("u32", 0)]
"""stride4G and mcOffset4K."""
RESOURCES = {"resources": (1024, torch.int32, 0)}
"""Counters and inboxes of barriers."""
COMM_BYTES = 248


def communicator(multimem=("u64", 0)):
    """ncclDevComm of a rank in one LSA team of all ranks, with barriers in the buffer `resources`."""
    counts = [("u32", 0), ("u32", 0), ("s32", "rank"), ("s32", "world_size"), ("u32", 0)]
    team = [("s32", "rank"), ("s32", "world_size"), ("u32", 0)]
    windows = [("u64", 0), ("u64", 0), ("peer", "resources", 0), *STRIDE]
    handles = [("u64", 0), multimem, ("u32", 0), ("s32", BLOCKS)]
    members = [*counts, *team, *windows, *handles]
    used_bytes = 8 * 4 + 4 * 8 + 2 * 8 + 8
    return ("struct", [*members, ("bytes", bytes(COMM_BYTES - used_bytes))])


def window(buffer):
    """ncclWindow_t of a buffer; what networks use stays zero."""
    return (
        "pointer",
        [("u64", 0), ("peer", buffer, 0), ("s32", "rank"), ("s32", "rank"), *STRIDE, ("bytes", bytes(72))],
    )


def of_nccl(function, ranks, target, expected, **launch):
    """A kernel after which the buffer `target` holds what is expected on each rank."""
    module = compiled("cute_to_ptx.py", {"source": SOURCE, "function": function, "arch": 90}, [SOURCE])
    launch["buffers"] = {**launch["buffers"], **RESOURCES}
    how = {"grid": BLOCKS, "block": THREADS, "heap_bytes": HEAP_BYTES, "local": (), **launch}
    return exact(module, ranks, lambda rank: {target: expected(rank)}, **how)


def store(ranks):
    source = random_rows(ranks, (NUMEL,), torch.float32, -99, 100)
    buffers = {"source": source, "window": (NUMEL, torch.float32)}
    arguments = [communicator(), window("window"), "source"]
    return of_nccl("store", ranks, "window", lambda rank: source[rank - 1], buffers=buffers, arguments=arguments)


def barrier(ranks, function="barrier", multimem=("u64", 0)):
    """What a rank reads behind the barrier is what the rank before stored."""
    source = random_rows(ranks, (NUMEL,), torch.float32, -99, 100)
    buffers = {"source": source, "window": (NUMEL, torch.float32), "target": (NUMEL, torch.float32)}
    arguments = [communicator(multimem), window("window"), "source", "target"]
    return of_nccl(function, ranks, "target", lambda rank: source[rank - 1], buffers=buffers, arguments=arguments)


def multimem_barrier(ranks):
    return barrier(ranks, "multimem_barrier", ("multicast", "resources"))


def reduce_copy(ranks):
    """Sums of integers are exact in any order."""
    numel = 1024
    source = random_rows(ranks, (numel,), torch.float32, -999, 1000)
    total = torch.stack(source).sum(0)
    buffers = {"source": source, "target": (numel, torch.float32)}
    arguments = [communicator(), window("source"), window("target"), ("s32", numel)]
    return of_nccl("reduce_copy", ranks, "target", lambda rank: total, buffers=buffers, arguments=arguments)


def packets(ranks):
    """Three calls in a row of an all_reduce by LL packets, each in several epochs. The sums are in rank order."""
    numel, calls = 2 * NUMEL, 3
    source = random_rows(ranks, (calls * numel,), torch.float32, -999, 1000)
    total = torch.stack(source).sum(0)
    lines = BLOCKS * (1 + 2 * ranks * THREADS)
    buffers = {"source": source, "target": (calls * numel, torch.float32), "resources": (4 * lines, torch.int32, 0)}

    def given(call):
        threads, places = ("struct", [("u32", 0), ("u32", ranks * THREADS)]), f"+{4 * numel * call}"
        return [communicator(), threads, f"source{places}", f"target{places}", ("s32", numel)]

    steps = [{"arguments": given(call)} for call in range(calls)]
    how = {"grid": BLOCKS, "block": THREADS, "heap_bytes": HEAP_BYTES, "local": ("source", "target")}
    how["assumptions"] = ["vector_16"]  # else a store of data and epoch is torn, and sums are wrong in random orders
    module = of_cuda("nccl_ll.cu", "all_reduce_ll")
    return exact(module, ranks, lambda rank: {"target": total}, buffers=buffers, steps=steps, **how)


KERNELS = (
    Foreign("NCCL: store through an LSA pointer", "nccl4py", store),
    Foreign("NCCL: LSA barrier", "nccl4py", barrier),
    Foreign("NCCL: LSA barrier by multimem", "nccl4py", multimem_barrier),
    Foreign(
        "NCCL: all_reduce by LL packets",
        "nvidia-nccl-cu13",
        packets,
        "bit for bit, by vector_16",
        needs_host_compiler=True,
    ),
    Foreign("NCCL: lsa_reduce_sum_copy between two barriers", "nccl4py", reduce_copy),
)
