"""What NVSHMEM's device code finds in its constants: the state that its host library writes into a module on GPUs.

A module with NVSHMEM's device code linked into it (its bitcode, say) names `nvshmemi_device_state_d`. On GPUs the host
library fills it once the module is loaded (nvshmemx_cumodule_init; library_init in nvshmem4py). Here the simulator
does so when a rank first launches a kernel of the module: rank and world size as the PE and the number of PEs, the
rank's heap as the symmetric heap, and all ranks' heaps as addresses that loads and stores reach. So data moves by loads
and stores; code for networks faults, because what it needs is null. There is one team, that of all PEs, with the memory
that its barriers need (null if the heaps leave no room for it in their windows); the other teams and the device's
collectives fault, as theirs is null.

Layout: nvshmemi_device_host_state_v1 in NVSHMEM's device_host/nvshmem_types.h. KNOWN says which versions have it.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from memory.fabric import Executable
from simulator.memory.heaps import Allocation
from simulator.memory.space import Space
from simulator.ptx.ir import Kernel

STATE = "nvshmemi_device_state_d"
STATE_BYTES = 848
KNOWN = ((3, 8),)
"""Versions (major, minor) of NVSHMEM whose state has this layout."""

_VERSION = re.compile(r"\bnvshmemi_device_lib_version_d\[12\]\s*=\s*\{([\d,\s]*)\}")
_TABLE = "heaps of NVSHMEM's PEs"
_MAPPING = "PEs of NVSHMEM's team"
_TEAM = "NVSHMEM's team of all PEs"
_POOL = "NVSHMEM's teams"
_COUNTS = "barriers of NVSHMEM's team"
SYNC_WORDS = "words of NVSHMEM's barriers"
_TEAM_BYTES = 816  # nvshmemi_team_v4
_AREA_BYTES = 8 * 2 * 27648  # NVSHMEMI_SYNC_SIZE longs: barriers use two areas in turn
_BLOCK = 1  # nvshmemi_pe_dist_t: PEs are numbered node by node
_LOADS_AND_STORES = 1  # NVSHMEMI_JOB_GPU_LDST_ATOMICS: every PE reaches every heap with loads, stores and atomics

_FIELDS = struct.Struct("<9i2?2xQQQ")
"""version, mype, npes, node_mype, node_npes, pe_dist, proxy, atomics_sync, job_connectivity, proxy_ops_are_ordered,
atomics_complete_on_quiet, heap_base, heap_size, peer_heap_base_p2p."""
_TEAMS_AT = struct.Struct("<QQQ"), 96
"""team_pool, psync_pool, sync_counter."""
_RADIX_AT = struct.Struct("<ii"), 124
"""barrier_dissem_kval and barrier_tg_dissem_kval of gpu_coll_env_params_var, with their defaults."""
_RADIX = 2, 16
_INITIALIZED_AT = 769
"""Offset of nvshmemi_is_nvshmem_initialized; nvshmemi_is_nvshmem_bootstrapped follows."""


def check_version(executable: Executable, kernel: Kernel) -> None:
    """Raise ValueError if the kernel names NVSHMEM's state, and its layout is not the one that is known here."""
    state = next((one for one in kernel.variables if one.name == STATE), None)
    if state is None:
        return
    known = ", ".join(".".join(map(str, one)) for one in KNOWN)
    version = version_of(executable.ptx)
    if version is None or version[:2] not in KNOWN or state.size_bytes != STATE_BYTES:
        found = "an unknown version" if version is None else ".".join(map(str, version))
        raise ValueError(
            f"{executable.name} has device code of NVSHMEM {found} with a state of {state.size_bytes} bytes; the "
            f"simulator knows the state of NVSHMEM {known}, {STATE_BYTES} bytes: link that version's bitcode"
        )


def version_of(ptx: str) -> tuple[int, int, int] | None:
    """Return major, minor and patch of NVSHMEM's device code in a module; None if it does not tell."""
    found = _VERSION.search(ptx)
    if found is None:
        return None
    given = bytes(int(one) for one in found.group(1).split(",") if one.strip())
    major, minor, patch = struct.unpack("<3i", given.ljust(12, b"\0"))
    return major, minor, patch


def fill_state(space: Space, rank: int, state: Allocation) -> None:
    """Write a rank's state into the variable that a module keeps it in."""
    heaps = [space.base(rank) + peer * space.capacity for peer in range(space.world_size)]
    fields = _FIELDS.pack(
        (1 << 16) + STATE_BYTES,
        rank,
        space.world_size,
        rank,
        space.world_size,
        _BLOCK,
        0,
        0,
        _LOADS_AND_STORES,
        False,
        False,
        heaps[rank],
        space.heap_bytes,
        _table(space, rank, heaps),
    )
    space.host_write(state, 0, np.frombuffer(fields, np.uint8))
    space.host_write(state, _INITIALIZED_AT, np.ones(2, np.uint8))
    for (form, at), values in ((_TEAMS_AT, _teams(space, rank)), (_RADIX_AT, _RADIX)):
        space.host_write(state, at, np.frombuffer(form.pack(*values), np.uint8))


def _teams(space: Space, rank: int) -> tuple[int, int, int]:
    """The addresses of the pool of teams, of which there is the one of all PEs, of the words through which its PEs meet
    in barriers (in symmetric memory), and of its count of barriers. All modules of a rank share them."""
    world = space.world_size
    mapping = _made(space, rank, _MAPPING, np.tile(np.arange(world, dtype=np.int32), 2))
    team = bytearray(_TEAM_BYTES)
    fields = (4 << 16) + _TEAM_BYTES, rank, 0, 1, world, 0
    for form, at, values in (("<6i", 0, fields), ("<2?", 236, (True, True)), ("<Q", 784, (mapping,))):
        struct.pack_into(form, team, at, *values)
    made = _made(space, rank, _TEAM, np.frombuffer(team, np.uint8))
    pool = _made(space, rank, _POOL, np.array([made], np.uint64))
    counts = _made(space, rank, _COUNTS, np.array([1, 0], np.int64))
    return pool, _words(space, rank), counts


def _words(space: Space, rank: int) -> int:
    """The address of a rank's words through which PEs meet: two areas in turn, in each a word a PE. They lie at one
    place of all ranks' windows, behind the heaps; null, if these fill their windows."""
    key = ("", rank, SYNC_WORDS)
    if key not in space.variables:
        size_bytes = _AREA_BYTES + 16 * space.world_size
        for other, made in enumerate(space.allocate_beyond(size_bytes, SYNC_WORDS)):
            space.host_write(made, 0, np.zeros(size_bytes, np.uint8))
            space.variables["", other, SYNC_WORDS] = made
    return space.address(rank, space.variables[key]) if key in space.variables else 0


def _table(space: Space, rank: int, heaps: list[int]) -> int:
    """The address of the table of all PEs' heaps as the rank sees them. All modules of a rank share one."""
    return _made(space, rank, _TABLE, np.array(heaps, np.uint64))


def _made(space: Space, rank: int, name: str, content: np.ndarray[Any, Any]) -> int:
    """The address of a rank's variable of a name, which is made with this content if it is not there yet."""
    key = ("", rank, name)
    if key not in space.variables:
        given = content.view(np.uint8)
        made = space.allocate_variable(rank, len(given), 8, name, "global")
        space.host_write(made, 0, given)
        space.variables[key] = made
    return space.address(rank, space.variables[key])
