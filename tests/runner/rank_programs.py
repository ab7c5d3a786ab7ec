"""What runs in the rank processes of tests: a fabric of files, its opener, programs. They import it: hence a module.

The heap of a rank is a file that all ranks map; kernels are Python functions; ranks meet through the real Meeting.
"""

import ctypes
import mmap
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from memory.fabric import Argument, DeviceFault, Executable, HeapFull, Launch, NoMulticast, Region, Traits
from memory.meeting import Meeting
from memory.pool import SymmetricPool
from memory.process_group import process_group
from tests.patience import until

HEAP_BYTES = 1 << 20
ALIGNMENT_BYTES = 256


class FileFabric:
    """The RankFabric of one process; rank r's heap is at (r + 1) << 32."""

    def __init__(self, store, rank, world_size, folder):
        self.rank = rank
        self.world_size = world_size
        self.meeting = Meeting(store, rank, world_size)
        self.traits = Traits("files", "none", world_size, HEAP_BYTES, False, "files have no switch", simulated=True)
        path = folder / f"heap-{rank}"
        path.write_bytes(b"\xff" * HEAP_BYTES)  # poison, as of all fresh memory
        self.meeting.exchange("open", "")
        self.heaps = [self._mapped(folder / f"heap-{peer}") for peer in range(world_size)]
        self.meeting.exchange("opened", "")
        path.unlink()
        self.regions = {}
        self.dropped = 0

    def _mapped(self, path):
        with path.open("r+b") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), HEAP_BYTES), dtype=torch.uint8)

    def begin(self, run):
        self.meeting.begin(run)

    def leave(self, text):
        self.meeting.leave(text)

    def set_deadline(self, monotonic_s):
        self.meeting.set_deadline(monotonic_s)

    def live_regions(self):
        return tuple(self.regions.values())

    def close(self):
        self.meeting.begin(1 << 40)
        self.meeting.exchange("close", "")

    def exchange(self, note):
        return self.meeting.exchange("exchange", note)

    def barrier(self):
        self.meeting.exchange("barrier", "")

    def allocate(self, size_bytes, alignment_bytes, name):
        self.meeting.exchange("allocate", name)
        offset = 0
        for region in sorted(self.regions.values(), key=lambda one: one.address):
            end = region.address - self._base(self.rank) + region.size_bytes
            offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        if offset + size_bytes > HEAP_BYTES:
            raise HeapFull(f'"{name}" of {size_bytes} bytes does not fit')
        region = Region(name, self._base(self.rank) + offset, size_bytes)
        self.regions[region.address] = region
        return region

    def free(self, region):
        self.meeting.exchange("free", region.name)
        del self.regions[region.address]

    def drop(self, region):
        self.regions.pop(region.address, None)

    def peer_address(self, region, peer):
        return region.address - self._base(self.rank) + self._base(peer)

    def multicast_address(self, region):
        raise NoMulticast(self.traits.multicast_reason)

    def view(self, region):
        return self.at(region.address, region.size_bytes)

    def inspect(self, region, offset_bytes=0, size_bytes=None):
        return self.view(region)[offset_bytes:][:size_bytes]

    def never_written(self, region):
        return None

    def write(self, region, offset_bytes, data):
        self.view(region)[offset_bytes : offset_bytes + data.numel()] = data

    def read(self, region, offset_bytes, size_bytes):
        return self.view(region)[offset_bytes : offset_bytes + size_bytes].clone()

    def launch(self, executable, launch, arguments):
        KERNELS[executable.entry](self, *(one.value for one in arguments))

    def synchronize(self):
        pass

    def at(self, address, size_bytes):
        peer, offset = (address >> 32) - 1, address & 0xFFFFFFFF
        if not 0 <= peer < self.world_size or offset + size_bytes > HEAP_BYTES:
            raise DeviceFault(f"address {address:#x} belongs to no rank")
        return self.heaps[peer][offset : offset + size_bytes]

    def _base(self, rank):
        return (rank + 1) << 32


def send_to_next(fabric, target, source, size_bytes):
    """Copy own bytes to the next rank."""
    fabric.at(target, size_bytes).copy_(fabric.at(source, size_bytes))


def ring_shift(fabric, source, targets, *others):
    """What send_recv/ring of tests/kernels/own_kernel.py does, with its parameters: the own input to the next rank."""
    size_bytes = others[4]
    table = fabric.at(targets, 8 * fabric.world_size).view(torch.int64)
    fabric.barrier()
    fabric.at(int(table[(fabric.rank + 1) % fabric.world_size]), size_bytes).copy_(fabric.at(source, size_bytes))
    fabric.barrier()


KERNELS = {"send_to_next": send_to_next, "ring_shift": ring_shift}
SEND = Executable("send_to_next", "send_to_next", "none", "", "sha256:0")


@dataclass(frozen=True)
class FileOpener:
    """Opens FileFabric with its heaps in folder; fault makes one rank fail at it."""

    folder: str
    fault: str = ""
    at_rank: int = 1

    def __call__(self, store, rank, world_size):
        if self.fault and rank == self.at_rank:
            if self.fault == "raise":
                print("the driver said no", flush=True)
                raise OSError("no device for this rank")
            if self.fault == "exit":
                os._exit(3)
            Path(self.folder, "not ready").touch()
            time.sleep(3600)  # never ready
        return FileFabric(store, rank, world_size, Path(self.folder))


class FaultyFabric:
    """A fabric that raises at one call of a method, before it reaches the others."""

    def __init__(self, fabric, method, at_call):
        self.fabric, self.method, self.left = fabric, method, at_call

    def __getattr__(self, name):
        if name == self.method:
            self.left -= 1
            if self.left == 0:
                raise KeyError(f"injected at {self.method}")
        return getattr(self.fabric, name)


@dataclass(frozen=True)
class Fault:
    """What happens on one rank in ring(). told: the file that one which never ends makes as it begins."""

    kind: str
    rank: int = 1
    at_call: int = 1
    told: str = ""


def nothing(fabric, argument):
    return argument


def ring(fabric, fault):
    """A real program over the pool: two tensors, two launches, what the previous rank sent."""
    if fault is not None and fault.rank == fabric.rank and fault.kind in ("allocate", "launch"):
        fabric = FaultyFabric(fabric, fault.kind, fault.at_call)
    with SymmetricPool(fabric) as pool:
        source = pool.tensor(4, torch.int32, name="source", fill=fabric.rank + 10)
        target = pool.tensor(4, torch.int32, name="target", fill=0)
        following = (fabric.rank + 1) % fabric.world_size
        for turn in range(2):
            fabric.barrier()
            if turn == 1 and fault is not None and fault.rank == fabric.rank:
                commit(fault)
            if turn == 1 and fault is not None and fault.told:
                until(Path(fault.told).exists)
                fabric.set_deadline(time.monotonic())  # that of all is over now
            addresses = (fabric.peer_address(target.region, following), source.address)
            arguments = (*(Argument("address", one) for one in addresses), Argument("u64", 16))
            fabric.launch(SEND, Launch(1, 1), arguments)
            fabric.synchronize()
            fabric.barrier()
        return [int(one) for one in target.read()]


def commit(fault):
    """The faults that are no exceptions of the fabric."""
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.kind == "abort":
        print("the library gave up", flush=True)
        os.abort()
    if fault.told:
        Path(fault.told).touch()
    while fault.kind == "spin":
        pass  # for ever
    if fault.kind == "native":
        ctypes.PyDLL(None).sleep(3600)  # keeps the interpreter to itself


def leave_behind(fabric, argument):
    fabric.allocate(16, 16, "flags" if fabric.rank else "data")


def group_sum(fabric, argument):
    """A sum over all ranks by torch's own process group, made once a process."""
    from torch import distributed

    group = process_group()
    assert process_group() is group
    mine = torch.tensor([float(fabric.rank + 1)])
    distributed.all_reduce(mine, group=group)
    return float(mine)


def pid(fabric, argument):
    return os.getpid()


def wait_in_a_barrier(fabric, folder):
    """Rank 0 waits for the others, who write down that they sleep."""
    if fabric.rank:
        Path(folder, f"sleeping-{fabric.rank}").touch()
        time.sleep(3600)
    fabric.barrier()


def listening(fabric, argument):
    """Where this process listens, after its process group has met: addresses, in the kernel's hexadecimal."""
    group_sum(fabric, None)
    return listening_addresses("self")


def listening_addresses(process):
    """The addresses at which a process listens, as "address:port" in the hexadecimal of /proc/net/tcp."""
    sockets = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            sockets.add(os.readlink(descriptor))
        except OSError:
            continue
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
                found.append(fields[1])
    return found
