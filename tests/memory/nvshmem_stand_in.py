"""A stand-in for NVSHMEM and for a GPU's driver, ranks being threads: it enforces what is known of the real ones.

Collective calls come from all ranks in one order with the same sizes, or the test fails, where NVSHMEM would hang. The
books are nvshmem4py's: a buffer is found by its exact address, asking for the own rank's peer tensor counts as another
owner, peers and multicast are children that are freed with their parent. Memory that was mapped is used only after all
ranks have synchronised and met. finalize complains about what is still held.
"""

import functools
import threading
import time
from dataclasses import dataclass, field

import torch
from torch.distributed import HashStore

from memory.fabric import DeviceFault
from memory.meeting import Meeting, lost
from memory.nvshmem_fabric import connect
from tests.memory.driver_stand_in import Misuse, StandInDriver, Window
from tests.memory.outcomes import good, together
from tests.patience import PATIENCE_S

GRANULE_BYTES = 512


class NvshmemError(Exception):
    """What the library raises where it can't do something."""


class NvshmemInvalid(Exception):
    """What the library raises for arguments that it does not know."""


@dataclass(slots=True)
class Entry:
    """A line of one rank's books. kind: "normal", "peer" or "multicast"."""

    kind: str
    tensor: torch.Tensor
    references: int = 1
    children: set[int] = field(default_factory=set)


class ObservedMeeting(Meeting):
    """A meeting that tells the stand-in when all ranks have met."""

    def __init__(self, world, store, rank):
        super().__init__(store, rank, world.world_size)
        self.world = world

    def exchange(self, kind, note):
        world = self.world
        for address in world.synchronised[self.rank]:
            # Known before any rank can have met: whoever has, may use it.
            world.published[self.rank].setdefault(address, world.meetings[self.rank] + 1)
        world.synchronised[self.rank].clear()
        answers = super().exchange(kind, note)
        world.meetings[self.rank] += 1
        return answers


class StandInWorld:
    """world_size ranks on stand-ins: the machine behind NvshmemFabrics that tests use like a simulated one.

    multicast_on names the ranks that get multicast addresses (True: all). unmapped holds pairs (rank, peer) where rank
    does not see peer's memory. gpu_free_bytes is each rank's free GPU memory. gpus names each rank's GPU (none:
    one each), share_gpus whether they may be the same.
    """

    def __init__(
        self,
        world_size,
        heap_bytes=1 << 20,
        multicast=True,
        *,
        unmapped=(),
        gpu_free_bytes=None,
        gpus=(),
        share_gpus=False,
    ):
        self.share_gpus = share_gpus
        self.world_size = world_size
        self.heap_bytes = heap_bytes
        self.multicast_on = range(world_size) if multicast is True else multicast or ()
        self.unmapped = set(unmapped)
        self.gpu_free_bytes = gpu_free_bytes or {}
        capacity = max(2 * heap_bytes, 1 << 16)
        self.windows = [Window(capacity) for _ in range(world_size)]
        self.multicast_window = Window(capacity)
        self.spans = {}
        self.condition = threading.Condition()
        self.arrived = {}
        self.turn = 0
        self.misuse = None
        self.calls = [[] for _ in range(world_size)]
        self.complaints = []
        self.variables = []  # that were set: rank, kernel, name, offset, content
        self.mapped = [set() for _ in range(world_size)]
        self.synchronised = [set() for _ in range(world_size)]
        self.published = [{} for _ in range(world_size)]
        self.meetings = [0] * world_size
        self.kernels = {}
        self.store = HashStore()
        self.run_number = -1
        self.away = set(range(world_size))
        self.libraries = [StandInLibrary(self, rank) for rank in range(world_size)]
        self.drivers = [StandInDriver(self, rank, gpus[rank] if gpus else "") for rank in range(world_size)]
        self.fabrics = self._connect()

    def _connect(self):
        def connected(rank):
            meeting = ObservedMeeting(self, self.store, rank)
            meeting.set_deadline(time.monotonic() + PATIENCE_S)
            try:
                one = connect(self.libraries[rank], self.drivers[rank], meeting, self.heap_bytes, self.share_gpus)
            except BaseException as error:
                meeting.leave(repr(error))
                raise
            one.set_deadline(None)
            return one

        return good(together(functools.partial(connected, rank) for rank in range(self.world_size)))

    # A machine, as tests and ThreadWorld use it

    def fabric(self, rank):
        if len(self.away) == self.world_size:
            self.run_number += 1
            for fabric in self.fabrics:
                fabric.begin(self.run_number)
        self.away.discard(rank)
        return self.fabrics[rank]

    def leave(self, rank, error):
        self.fabrics[rank].leave("" if error is None else f"{type(error).__name__}: {error}")
        with self.condition:
            self.away.add(rank)

    def set_deadline(self, monotonic_s):
        for fabric in self.fabrics:
            fabric.set_deadline(monotonic_s)

    def counters(self):
        return {}

    def live_regions(self, rank):
        return self.fabrics[rank].live_regions()

    def close(self):
        """Nothing to give back: it is a test's."""

    def abort(self, error):
        lost(self.store, self.run_number, None, f"{type(error).__name__}: {error}")

    # The library's side

    def collective(self, rank, call, act=lambda: None):
        """Wait for all ranks to make the same call; the last to come acts for all."""
        with self.condition:
            self.calls[rank].append(call)
            mine = self.turn
            self.arrived[rank] = call
            if len(self.arrived) == self.world_size:
                if len(set(self.arrived.values())) > 1:
                    self.misuse = Misuse(f"the ranks called different things, and hang: {self.arrived}")
                self.answer = act()
                self.arrived = {}
                self.turn += 1
                self.condition.notify_all()
            elif not self.condition.wait_for(lambda: self.turn > mine or self.misuse is not None, PATIENCE_S):
                self.misuse = Misuse(f"rank {rank} hangs in {call}: only ranks {sorted(self.arrived)} came")
                self.condition.notify_all()
            if self.misuse is not None:
                raise self.misuse
            return self.answer

    def place(self, size_bytes):
        """First fit; None when there is no room."""
        length = -(-size_bytes // GRANULE_BYTES) * GRANULE_BYTES
        offset = 0
        for start, held in [*sorted(self.spans.items()), (len(self.windows[0].array), 0)]:
            if offset + length <= start:
                self.spans[offset] = length
                return offset
            offset = start + held
        return None

    # The driver's side

    def at(self, rank, address, size_bytes):
        """What a kernel of a rank reaches at an address: only what the rank has mapped, and only after all met."""
        for window in [*self.windows, self.multicast_window]:
            if address in window:
                offset = address - window.address
                for start, length in self.spans.items():
                    if start <= offset and offset + size_bytes <= start + length:
                        self._check_usable(rank, window, start)
                        return torch.from_numpy(window.slice(offset, size_bytes))
        raise DeviceFault(f"rank {rank}: {size_bytes} bytes at {address:#x} belong to no allocation")

    def _check_usable(self, rank, window, start):
        for peer in range(self.world_size):
            seen = window if peer == rank else self.windows[peer]
            met = self.published[peer].get(seen.address + start)
            if met is None or met > self.meetings[rank]:
                raise Misuse(
                    f"rank {rank} uses memory at offset {start} for which rank {peer} did not synchronise and meet"
                )


class StandInLibrary:
    """memory.library.Library for one rank."""

    def __init__(self, world, rank):
        self.world = world
        self.rank = rank
        self.entries = {}
        self.initialized = False
        self.started = []
        self.ended = []
        self.failing = set()
        self.own_peer_requests = 0

    def versions(self):
        return "0.0.0", "stand-in"

    def unique_id(self):
        return bytes([7, 0, 255])

    def init(self, unique_id, rank, world_size):
        if self.initialized:
            raise Misuse("a second init in one process")
        if (unique_id, rank, world_size) != (bytes([7, 0, 255]), self.rank, self.world.world_size):
            raise Misuse(f"init of {unique_id!r} as rank {rank} of {world_size}")
        self.world.collective(self.rank, "init")
        self.initialized = True

    def finalize(self):
        self._check()
        held = sorted(address for address, entry in self.entries.items() if entry.kind == "normal")
        if held:
            self.world.complaints.append(f"rank {self.rank}: {len(held)} buffers were not freed")
        if self.started:
            self.world.complaints.append(f"rank {self.rank}: {len(self.started)} CUlibraries were not finalized")
        self.world.collective(self.rank, "finalize")
        self.initialized = False

    def library_init(self, handle):
        self._check()
        if handle in self.started:
            raise Misuse(f"a second library_init of {handle}")
        self.started.append(handle)

    def library_finalize(self, handle):
        self._check()
        self.started.remove(handle)
        self.ended.append(handle)
        if handle in self.failing:
            raise NvshmemError("Failed to finalize CULibrary for NVSHMEM")

    def tensor(self, size_bytes):
        self._check()
        offset = self.world.collective(self.rank, f"malloc {size_bytes}", act=lambda: self.world.place(size_bytes))
        if offset is None:
            raise NvshmemError(f"Failed to allocate memory of bytes {size_bytes}")
        return self._entered(None, "normal", self.world.windows[self.rank], offset, size_bytes)

    def _entered(self, parent, kind, window, offset, size_bytes):
        tensor = torch.from_numpy(window.slice(offset, size_bytes))
        self.entries[tensor.data_ptr()] = Entry(kind, tensor)
        self.world.mapped[self.rank].add(tensor.data_ptr())
        if parent is not None:
            self.entries[parent].children.add(tensor.data_ptr())
        return tensor

    def free_tensor(self, tensor):
        self._check()
        address = tensor.data_ptr()
        entry = self._tracked(tensor)
        entry.references -= 1
        if entry.references:
            return
        if entry.kind == "normal":
            offset = address - self.world.windows[self.rank].address
            self.world.collective(self.rank, f"free {offset}", act=lambda: self.world.spans.pop(offset))
            for child in entry.children:
                self._forget(child)
        self._forget(address)

    def _forget(self, address):
        self.entries.pop(address, None)
        self.world.mapped[self.rank].discard(address)
        self.world.synchronised[self.rank].discard(address)
        self.world.published[self.rank].pop(address, None)

    def get_peer_tensor(self, tensor, peer):
        self._check()
        self._tracked(tensor)
        if peer == self.rank:
            self.own_peer_requests += 1
        if (self.rank, peer) in self.world.unmapped:
            raise NvshmemError("Failed to retrieve peer buffer")
        return self._look_up("peer", self.world.windows[peer], tensor)

    def get_multicast_tensor(self, tensor):
        self._check()
        self._tracked(tensor)
        if self.rank not in self.world.multicast_on or self.world.world_size < 2:
            raise NvshmemError("Failed to retrieve multicast buffer")
        return self._look_up("multicast", self.world.multicast_window, tensor)

    def _look_up(self, kind, window, parent):
        offset = parent.data_ptr() - self.world.windows[self.rank].address
        known = self.entries.get(window.address + offset)
        if known is not None:
            known.references += 1
            return known.tensor
        return self._entered(parent.data_ptr(), kind, window, offset, parent.numel())

    def barrier_on_stream(self, stream):
        self._check()
        self.world.drivers[self.rank].queue.append(lambda: self.world.collective(self.rank, "barrier"))

    def collective_on_stream(self, call, destination, source, stream):
        self._check()
        if call.dtype == "torch.bool":
            raise ValueError(f"no {call.reduction} of {call.dtype}")
        dtype = getattr(torch, call.dtype.removeprefix("torch."))
        world, ranks = self.world, len(self.world.windows)
        whole = ranks if call.collective in ("reducescatter", "alltoall") else 1
        source_bytes = call.count * whole * dtype.itemsize

        def act():
            inputs = world.collective(self.rank, f"{call}", act=lambda: self._inputs(source, source_bytes))
            found = _collected(call, [one.view(dtype) for one in inputs], self.rank)
            world.collective(self.rank, "collected")
            raw = found.contiguous().view(torch.uint8)
            world.at(self.rank, destination, raw.numel()).copy_(raw)

        world.drivers[self.rank].queue.append(act)

    def _inputs(self, source, size_bytes):
        offset = source - self.world.windows[self.rank].address
        return [torch.from_numpy(window.slice(offset, size_bytes)).clone() for window in self.world.windows]

    def _tracked(self, tensor):
        if tensor.data_ptr() not in self.entries:
            raise NvshmemInvalid("Tried to retrieve buffer from Tensor not tracked by nvshmem")
        return self.entries[tensor.data_ptr()]

    def _check(self):
        if not self.initialized:
            raise NvshmemInvalid("NVSHMEM Library is not initialized")


def _collected(call, inputs, rank):
    """What one of the library's collectives gives a rank."""
    chunk = slice(rank * call.count, (rank + 1) * call.count)
    if call.collective in ("reduce", "reducescatter"):
        stacked = torch.stack(inputs)
        total = (
            stacked.sum(0).to(stacked.dtype) if call.reduction == "sum" else getattr(stacked, f"a{call.reduction}")(0)
        )
        return total if call.collective == "reduce" else total[chunk]
    if call.collective == "broadcast":
        return inputs[call.root]
    return torch.cat([one[chunk] if call.collective == "alltoall" else one for one in inputs])
