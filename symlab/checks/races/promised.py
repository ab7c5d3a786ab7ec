"""What the race checker takes on trust of NVSHMEM's device code: order that NVSHMEM promises and its PTX does not make.

It holds in launches whose module has NVSHMEM's device code in it, and there for forms that the compiler writes for that
code alone, as what was inlined can't be told from what is around it:

- `membar.gl` orders among all GPUs. It is the fence behind signal_wait_until, wait_until and test, which promise that
  data put before the signal of another GPU can be read; PTX makes it a fence of one GPU.
- `ld.b64`, weak and generic, is a single access to a word: signal_wait_until and signal_fetch read the signal so. It
  races with a signal no more; with data that was put it does, as before.
- The words through which barrier_all and sync_all meet are acquired by who reads them, and release what the first
  thread of the block has fenced: barrier_all fences there, sync_all does not.

put_signal, signal_op, fence and quiet need no trust: what their PTX orders is what they promise.
"""

from __future__ import annotations

import numpy as np

from simulator.memory.space import Space
from simulator.observe.events import Access
from simulator.ptx.ir import Instruction
from simulator.run.nvshmem import SYNC_WORDS

_WORD = ("b64",)
_WORD_BYTES = 8


def is_fence_of_all(instruction: Instruction) -> bool:
    """Whether NVSHMEM counts on a fence among all GPUs where PTX has one of its own GPU."""
    return instruction.opcode == "membar" and "gl" in instruction.qualifiers


def order(event: Access, space: Space) -> str:
    """Return the memory order of an access: the instruction's, or what NVSHMEM promises of it."""
    found = event.order
    if event.action == "load" and event.space == "global":
        if found == "weak" and event.instruction.qualifiers == _WORD and event.width_bytes == _WORD_BYTES:
            return "relaxed"
        if found == "volatile" and is_meeting(event, space):
            return "acquire"
    return found


def is_meeting(event: Access, space: Space) -> bool:
    """Whether an access is to the words through which NVSHMEM's barriers meet."""
    if event.index is None or event.order != "volatile":
        return False
    found = space.allocations[max(int(space.granules[int(np.min(event.index)) // space.granule_bytes]), 0)]
    return found is not None and found.name == SYNC_WORDS
