"""The NVSHMEM fabric on the installed library: nvshmem4py and the libnvshmem that it finds.

torch.distributed carries the unique id from rank 0 to the others: not a broadcast of a process group, but its store,
because waits on a store can be interrupted and name the rank that never came (memory/meeting.py).

NVSHMEM is started once in a process and for one world size: a second start in the same process is not defined.
"""

from __future__ import annotations

import time

from memory.driver import CudaDriver
from memory.library import Library
from memory.meeting import Meeting, Store
from memory.nvshmem_fabric import NvshmemFabric, connect

OPENING_S = 60.0
"""How long ranks wait for each other before the first program: importing torch on a busy machine takes its time."""


def open_fabric(
    store: Store,
    rank: int,
    world_size: int,
    device_index: int,
    heap_bytes: int,
    *,
    share_gpus: bool = False,
    deadline_s: float = OPENING_S,
) -> NvshmemFabric:
    """Collective: this process's NvshmemFabric, on the GPU device_index, which need not be the rank.

    store is this process's own client of the store that all ranks share. heap_bytes caps what each rank allocates at a
    time; 0: see probe. Raises FabricError with what the library said, PeerLost and DeadlineExceeded naming ranks that
    did not come, and FabricError if two ranks have the same GPU, unless share_gpus lets them.
    """
    meeting = Meeting(store, rank, world_size)
    meeting.set_deadline(time.monotonic() + deadline_s)
    # The GPU is made current before anything else touches the driver in this process.
    driver = CudaDriver(device_index, rank)
    fabric = connect(Library(device_index), driver, meeting, heap_bytes, share_gpus)
    fabric.set_deadline(None)
    return fabric
