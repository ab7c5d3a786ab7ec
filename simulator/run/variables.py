"""The .global and .const variables of modules: one a rank and module, made when a kernel first names it.

As on a GPU a module is loaded once: its variables keep their values from launch to launch.
"""

from __future__ import annotations

import numpy as np

from memory.fabric import Executable
from simulator.memory.heaps import Allocation
from simulator.memory.space import SHARED, Space
from simulator.ptx.ir import Kernel, Relocation
from simulator.run.calls import address_of
from simulator.run.nvshmem import STATE, fill_state

WORKSPACE = "workspace of a cooperative launch"


def variable_of(space: Space, executable: Executable, kernel: Kernel, rank: int, name: str) -> Allocation:
    """Return a variable that the kernel names, with its first value if it is new. Raises HeapFull and KeyError."""
    key = (executable.digest, rank, name)
    if key in space.variables:
        return space.variables[key]
    one = {variable.name: variable for variable in kernel.variables}[name]
    made = space.allocate_variable(rank, max(one.size_bytes, 1), one.alignment_bytes, name, one.space)
    space.variables[key] = made
    contents = bytearray(one.initial)
    for relocation in one.relocations:
        value = _address(space, executable, kernel, rank, relocation) + relocation.addend >> relocation.shift_bits
        size = relocation.size_bytes
        at = relocation.offset_bytes
        contents[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    space.host_write(made, 0, np.frombuffer(bytes(contents), np.uint8))
    if name == STATE:
        fill_state(space, rank, made)
    return made


def workspace_of(space: Space, executable: Executable, rank: int) -> Allocation:
    """Return the 8 bytes through which the blocks of a cooperative launch meet: their number (8), and a word that is 0
    before the kernel's first launch. CUDA's headers find them by %envreg1 and %envreg2. Raises HeapFull."""
    key = (executable.digest, rank, WORKSPACE)
    if key not in space.variables:
        made = space.variables[key] = space.allocate_variable(rank, 8, 8, WORKSPACE, "global")
        space.host_write(made, 0, np.array([8, 0], np.uint32).view(np.uint8))
    return space.variables[key]


def _address(space: Space, executable: Executable, kernel: Kernel, rank: int, relocation: Relocation) -> int:
    for function in kernel.functions:
        if function.name == relocation.symbol:
            return address_of(function.number)
    for shared in kernel.shared:
        if shared.name == relocation.symbol:
            return shared.offset_bytes + (SHARED if relocation.is_generic else 0)
    return space.address(rank, variable_of(space, executable, kernel, rank, relocation.symbol))
