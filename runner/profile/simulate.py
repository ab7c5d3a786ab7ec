"""Compile a kernel of the catalogue, simulate one case on its ranks with the clock, and return its launches."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases.case import Case
from kernels.catalogue import find
from kernels.compile import executable
from kernels.spec import KernelSpec
from memory.fabric import Executable
from runner.case.program import Plan, run_case
from runner.world.threads import ThreadWorld
from simulator.clock.costs import H200_TRIAL, Costs
from simulator.clock.profile import LaunchProfile
from simulator.world import SimulatedWorld, SimulatorOptions

LAUNCHES = 2
"""Launches that are simulated: flags and banks of the later ones are as in a run that goes on."""
DEADLINE_S = 600.0
KERNELS = Path.home() / ".cache" / "symlab" / "kernels"


@dataclass(frozen=True, slots=True)
class CaseProfile:
    """A case that was simulated. ptx: "sha256:..", of the kernel's PTX. launches: in their order; the last one stands
    for a launch of a run that goes on."""

    case: str
    kernel: str
    arch: str
    world_size: int
    size_bytes: int
    ptx: str
    launches: tuple[LaunchProfile, ...]

    @property
    def last(self) -> LaunchProfile:
        """The last launch."""
        return self.launches[-1]

    def document(self) -> dict[str, Any]:
        """Return the JSON form."""
        names = ("case", "kernel", "arch", "world_size", "size_bytes", "ptx")
        return {**{name: getattr(self, name) for name in names}, "launches": [one.document() for one in self.launches]}

    @staticmethod
    def of(document: Mapping[str, Any]) -> CaseProfile:
        """Return the profile of a JSON form. Raises ValueError for launches of another form."""
        launches = tuple(LaunchProfile.of(one) for one in document["launches"])
        names = ("case", "kernel", "arch", "world_size", "size_bytes", "ptx")
        return CaseProfile(**{name: document[name] for name in names}, launches=launches)


def profile(
    case: Case,
    costs: Costs = H200_TRIAL,
    *,
    launches: int = LAUNCHES,
    arch: str = "sm_90a",
    cache_dir: Path = KERNELS,
    spec: KernelSpec | None = None,
    compiled: Executable | None = None,
    keeps_spans: bool = False,
    deadline_s: float = DEADLINE_S,
) -> CaseProfile:
    """Simulate a case and return what its launches take and move.

    spec: the kernel's, None for the catalogue's of the case. compiled: its PTX, None to compile it for arch.
    keeps_spans: keep each warp's timeline (LaunchProfile.spans). Raises ValueError for a case that the kernel refuses
    or that does not run, WorldFailure for one that fails.
    """
    spec = spec or find(case.name)
    compiled = compiled or executable(spec, case, arch, cache_dir)
    options = SimulatorOptions(arch=compiled.arch, heap_bytes=_heap_bytes(case), clock=costs, keeps_spans=keeps_spans)
    machine = SimulatedWorld(case.world_size, options)
    world = ThreadWorld(case.world_size, machine=machine)
    try:
        world.run(run_case, Plan(case, spec, compiled, launches=launches, check=False, between=0), deadline_s)
        found = machine.profiles
    finally:
        world.close()
    digest = "sha256:" + hashlib.sha256(compiled.ptx.encode()).hexdigest()
    return CaseProfile(case.id, case.name, compiled.arch, case.world_size, case.size_bytes, digest, found)


def _heap_bytes(case: Case) -> int:
    """Room for the case's buffers and workspaces: several of its sizes, and one for each rank of an inbox."""
    wanted = (8 + 2 * case.world_size) * case.size_bytes + (64 << 20)
    return int(min(max(1 << (wanted - 1).bit_length(), 256 << 20), 1 << 32))
