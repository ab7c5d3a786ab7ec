"""A stand-in for a GPU's memory and its driver: kernels are Python functions, and run when they are waited for."""

import time
import weakref
from typing import TYPE_CHECKING

import numpy as np
import torch

from memory.fabric import DeadlineExceeded, DeviceFault

if TYPE_CHECKING:
    pass

BASE_ALIGNMENT_BYTES = 2 << 20


class Misuse(AssertionError):
    """A call that the real library answers with silence, damage or a hang."""


class Spinning(Exception):
    """Raised by a kernel to stand for one that never ends."""


class Window:
    """capacity bytes of host memory, aligned as a GPU's mappings are."""

    def __init__(self, capacity):
        raw = np.empty(capacity + BASE_ALIGNMENT_BYTES, dtype=np.uint8)
        skipped = -raw.ctypes.data % BASE_ALIGNMENT_BYTES
        self.array = raw[skipped : skipped + capacity]
        self.address = int(self.array.ctypes.data)

    def __contains__(self, address):
        return self.address <= address < self.address + len(self.array)

    def slice(self, offset, size_bytes):
        return self.array[offset : offset + size_bytes]


class StandInDriver:
    """CudaDriver for one rank: kernels are Python functions by entry, and run when they are waited for."""

    device = torch.device("cpu")
    arch = "sm_90a"
    l2_bytes = 50 << 20
    block_shared_bytes = 227 << 10
    multiprocessors = 132
    name = "stand-in"

    def __init__(self, world, rank, identity=""):
        self.world = world
        self.rank = rank
        self.identity = identity or f"GPU-{rank}"
        self.queue = []
        self.noted = []

    def free_bytes(self):
        return self.world.gpu_free_bytes.get(self.rank, 8 << 30)

    def lend(self, address, size_bytes):
        window = self.world.windows[self.rank]
        lent = window.slice(address - window.address, size_bytes)
        return torch.from_numpy(lent), weakref.ref(lent)

    def launch(self, executable, launch, arguments):
        kernel = self.world.kernels[executable.entry]
        self.queue.append(lambda: kernel(self.world.fabrics[self.rank], *(one.value for one in arguments)))

    def library_handle(self, executable):
        assert "nvshmemi_device_state_d" in executable.ptx
        return 7000 + len(executable.digest)

    def set_variable(self, executable, name, offset_bytes, content):
        self.world.variables.append((self.rank, executable.name, name, offset_bytes, content))

    def note(self, what):
        self.noted.append(what)

    def copy(self, destination, source, size_bytes):
        world, rank = self.world, self.rank
        self.queue.append(lambda: world.at(rank, destination, size_bytes).copy_(world.at(rank, source, size_bytes)))

    def stream(self):
        return 0

    def wait_stream(self, stream, other):
        """All work is in one row."""

    def wait(self, deadline):
        while self.queue:
            work = self.queue.pop(0)
            try:
                work()
            except Spinning:
                assert deadline is not None, "a kernel that never ends was waited for without a deadline"
                time.sleep(max(0.0, deadline - time.monotonic()))
                raise DeadlineExceeded(f"work launched on rank {self.rank} is still running at the deadline") from None
            except (DeviceFault, Misuse):
                raise
            except Exception as error:
                raise DeviceFault(f"rank {self.rank}: {type(error).__name__}: {error}") from error
        self.world.synchronised[self.rank] |= self.world.mapped[self.rank]
        self.world.mapped[self.rank].clear()
