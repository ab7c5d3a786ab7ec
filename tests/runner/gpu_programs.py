"""What runs in the rank processes of the GPU tests: real cases, with one rank that does not do its part."""

import os
import signal
from dataclasses import dataclass

import torch

from memory.fabric import Argument
from memory.pool import SymmetricPool
from runner.case.program import Plan, run_case

FAULTY_RANK = 1
NOBODYS_ADDRESS = 0x7000_0000_0000
"""Mapped by nobody: a kernel that goes there is stopped by the GPU."""


@dataclass(frozen=True)
class Damage:
    """What happens on FAULTY_RANK at one call (counted from 1) of a method of its fabric, within run_case(plan)."""

    plan: Plan
    kind: str = ""
    method: str = "launch"
    at_call: int = 1


class DamagedFabric:
    """A rank's fabric on which that happens."""

    def __init__(self, fabric, damage):
        self.fabric = fabric
        self.damage = damage
        self.calls = 0

    def __getattr__(self, name):
        if name == self.damage.method:
            self.calls += 1
            if self.calls == self.damage.at_call and self.damage.kind:
                return getattr(self, f"_{self.damage.kind}")
        return getattr(self.fabric, name)

    def _raise(self, *arguments):
        raise KeyError(f"injected at {self.damage.method} {self.calls}")

    def _kill(self, *arguments):
        os.kill(os.getpid(), signal.SIGKILL)

    def _spin(self, *arguments):
        while True:
            pass  # for ever

    def _skip(self, *arguments):
        """This rank launches nothing: its peers' kernels wait for it."""

    def _misdirect(self, executable, launch, arguments):
        nowhere = Argument("address", NOBODYS_ADDRESS)
        self.fabric.launch(executable, launch, [nowhere if one.kind == "address" else one for one in arguments])

    def _exhaust(self, *arguments):
        """Somebody else's memory leaves no room on this rank's GPU alone."""
        free_bytes, _ = torch.cuda.mem_get_info()
        hoard = torch.empty(free_bytes - (400 << 20), dtype=torch.uint8, device="cuda")
        try:
            return self.fabric.allocate(*arguments)
        finally:
            del hoard

    def _overdraw(self, *arguments):
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")


def damaged(fabric, damage):
    """run_case with the damage on one rank; how often the method was called there."""
    if fabric.rank != FAULTY_RANK:
        run_case(fabric, damage.plan)
        return 0
    wrapped = DamagedFabric(fabric, damage)
    run_case(wrapped, damage.plan)
    return wrapped.calls


def memory(fabric, argument):
    """Bytes held of the heap, bytes free on the GPU, live regions."""
    return fabric.held_bytes, fabric.free_bytes, len(fabric.live_regions())


def nothing(fabric, argument):
    return argument


def big_tensor(fabric, size_bytes):
    """Room for a large tensor: what an earlier shortage must not have changed."""
    with SymmetricPool(fabric) as pool:
        pool.tensor(size_bytes, torch.uint8, name="big")
