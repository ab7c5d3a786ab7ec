"""A stand-in for flashinfer.comm whose ranks are threads of one process and whose device memory is the host's.

Functions have names of flashinfer's, and of its parameters, with their defaults, those that the runner gives. Memory is
handed out full of ones, as a device may, and a ledger says what was not given back. Each all-reduce checks what the
real one rests on: whole vectors, addresses that were registered, counters that begin at zero, a workspace of the right
size; it adds in float32 in the order of ranks.
"""

import contextlib
import ctypes
import sys
import threading
from dataclasses import dataclass, field
from types import ModuleType

import torch

from tests.patience import PATIENCE_S

META_BYTES = 256


class AllReduceFusionPattern:
    kAllReduce = 0


def bytes_at(address, size_bytes):
    return torch.frombuffer((ctypes.c_uint8 * size_bytes).from_address(address), dtype=torch.uint8)


@dataclass
class Vllm:
    """What a rank's handle knows."""

    signals: list[int]
    table: torch.Tensor
    rank: int
    registered: dict[int, list[int]] = field(default_factory=dict)
    in_graphs: list[int] = field(default_factory=list)
    graph_calls: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    given: list[list[int]] = field(default_factory=list)


class Workspace:
    """What create_allreduce_fusion_workspace gives."""

    backend = "trtllm"

    def __init__(self, library, rank, world_size, elements, dtype):
        self.library, self.rank, self.world_size = library, rank, world_size
        self.elements, self.dtype = elements, dtype
        self.ipc_handles = [[library.allocate("workspace", 16)]]
        library.kept[id(self.ipc_handles)] = self.ipc_handles
        self.metadata = {"control_flag_ptr": library.allocate("flags", 20)}
        library.workspaces.append(self)

    def destroy(self):
        """As the real one: the references that flashinfer keeps stay, and so do the flags."""
        self.library.workspaces.remove(self)
        del self.ipc_handles, self.metadata


class StandIn:
    """flashinfer.comm for all ranks of a world of threads. live: what was allocated and not given back, by address."""

    AllReduceFusionPattern = AllReduceFusionPattern

    def __init__(self, ranks):
        self.ranks = ranks
        self.meeting = threading.Barrier(ranks)
        self.lock = threading.Lock()
        self.live = {}
        self.workspaces = []
        self.memory = {}
        self.kept = {}
        self.handles = {}
        self.shown = {}
        self.calls = []
        self.is_capturing = False
        self.local = threading.local()

    def allocate(self, what, size_bytes):
        memory = (ctypes.c_uint8 * (size_bytes + 256))()
        ctypes.memset(memory, 0xFF, size_bytes + 256)
        address = -(-ctypes.addressof(memory) // 256) * 256
        with self.lock:
            self.live[address], self.memory[address] = what, memory
        return address

    def free(self, address):
        with self.lock:
            del self.live[address], self.memory[address]

    def everyone(self, what, rank, mine):
        """What all ranks bring, by rank."""
        with self.lock:
            self.shown.setdefault(what, {})[rank] = mine
        self.meeting.wait(PATIENCE_S)
        found = [self.shown[what][one] for one in range(self.ranks)]
        self.meeting.wait(PATIENCE_S)
        return found

    def create_shared_buffer(self, size_in_bytes, group=None):
        return self.everyone("shared", self.local.rank, self.allocate("shared", size_in_bytes))

    def free_shared_buffer(self, pointers, group=None):
        self.everyone("freed", self.local.rank, None)
        self.free(pointers[self.local.rank])

    def vllm_meta_size(self):
        return META_BYTES

    def vllm_init_custom_ar(self, ipc_tensors, rank_data, rank, full_nvlink):
        assert full_nvlink, "without it the kernel is not launched on more than two ranks"
        assert not bytes_at(ipc_tensors[rank], META_BYTES).any(), "a rank waits for ever: its counters begin elsewhere"
        handle = 1000 + rank
        self.handles[handle] = Vllm(ipc_tensors, rank_data, rank)
        return handle

    def vllm_dispose(self, fa):
        del self.handles[fa]

    def vllm_register_buffer(self, fa, fake_ipc_ptrs):
        own = self.handles[fa]
        own.registered[fake_ipc_ptrs[own.rank]] = list(fake_ipc_ptrs)

    def vllm_all_reduce(self, fa, inp, out, reg_buffer, reg_buffer_sz_bytes, num_ctas):
        own = self.handles[fa]
        assert reg_buffer == 0
        assert num_ctas <= 36
        assert inp.numel() * inp.itemsize % 16 == 0
        assert (inp.dtype, inp.numel()) == (out.dtype, out.numel())
        self.calls.append({"rank": own.rank, "blocks": num_ctas})
        if self.is_capturing:
            own.in_graphs.append(inp.data_ptr())
            own.graph_calls.append((inp, out))
            return
        addresses = own.registered[inp.data_ptr()]
        self.reduce(own.rank, out, [bytes_at(one, inp.numel() * inp.itemsize).view(inp.dtype) for one in addresses])

    def vllm_get_graph_buffer_ipc_meta(self, fa):
        addresses = self.handles[fa].in_graphs
        return [byte for one in addresses for byte in one.to_bytes(64, "little")], [0] * len(addresses)

    def vllm_register_graph_buffers(self, fa, handles, offsets):
        own = self.handles[fa]
        calls = len(own.in_graphs)
        assert all(len(one) == 64 * calls for one in handles)
        assert all(len(one) == calls for one in offsets)
        by_rank = [
            [int.from_bytes(one[64 * call : 64 * call + 8], "little") for call in range(calls)] for one in handles
        ]
        own.given = [list(one) for one in zip(*by_rank, strict=True)]
        own.in_graphs = []

    def replay(self, rank):
        """Run the calls that a rank's graph holds: by the addresses that it was given."""
        own = self.handles[1000 + rank]
        for (inp, out), addresses in zip(own.graph_calls, own.given, strict=True):
            self.reduce(rank, out, [bytes_at(one, inp.numel() * inp.itemsize).view(inp.dtype) for one in addresses])

    def create_allreduce_fusion_workspace(
        self, backend="auto", world_size=None, rank=None, max_token_num=None, hidden_dim=None, dtype=None, group=None
    ):
        assert backend == "trtllm", "the others want multicast"
        assert group is not None
        made = Workspace(self, rank, world_size, max_token_num * hidden_dim, dtype)
        self.everyone("workspace", rank, None)
        return made

    def allreduce_fusion(
        self, input, workspace, pattern, launch_with_pdl=False, output=None, use_oneshot=None, fp32_acc=False
    ):
        rows, length = input.shape
        vectors = length * input.itemsize // 16
        assert pattern == AllReduceFusionPattern.kAllReduce
        assert launch_with_pdl
        assert rows * length <= workspace.elements
        assert length * input.itemsize % 16 == 0
        assert vectors <= 1024
        assert fp32_acc is (input.dtype != torch.float32), "float32 has no kernel that widens"
        if not use_oneshot:
            assert rows > workspace.world_size, "flashinfer asserts it"
            assert vectors >= workspace.world_size
        self.calls.append({"rank": workspace.rank, "one_shot": use_oneshot, "rows": rows})
        self.reduce(workspace.rank, output.view(-1), self.everyone("inputs", workspace.rank, input.reshape(-1).clone()))
        return output

    def trtllm_destroy_ipc_workspace_for_all_reduce_fusion(self, workspace, group=None):
        self.free(self.kept.pop(id(workspace))[0][0])

    def CudaRTLibrary(self, so_file=None):
        library = self

        class Runtime:
            def cudaFree(self, devPtr):
                library.free(devPtr.value)

        return Runtime()

    def reduce(self, rank, out, inputs):
        """All ranks meet, add, and meet again before anything is overwritten."""
        self.meeting.wait(PATIENCE_S)
        total = sum((one.float() for one in inputs), torch.zeros(out.shape))
        self.meeting.wait(PATIENCE_S)
        out.copy_(total.to(out.dtype))

    @contextlib.contextmanager
    def as_module(self, monkeypatch):
        """Within, `from flashinfer import comm` gives this."""
        package = ModuleType("flashinfer")
        package.comm = self
        monkeypatch.setitem(sys.modules, "flashinfer", package)
        yield self
