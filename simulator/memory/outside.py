"""What an address that lies in no tensor may have been meant as: hints for the messages of faults."""

from __future__ import annotations

from simulator.memory.heaps import GRANULE_BYTES, Heaps

NEAR_BYTES = 4096
"""How far before a tensor an address still counts as one of it: the simulator leaves as much between two tensors."""
_ELEMENT_BYTES = (1, 2, 4, 8, 16, 32)
_WRAPPED = "the index may have wrapped below zero (unsigned arithmetic)"


def hint(heaps: Heaps, index: int) -> str:
    """Return the end of a fault's message about an index into Heaps.memory, or beyond it; "" if nothing is
    known.

    An unsigned index of 32 bits below zero leads to 2^32 elements beyond what was meant, one of 64 bits to just before
    its tensor. The distance between two ranks' parts of a tensor, added to a variable of a module, leads to no memory.
    """
    if before := _near(heaps, index, is_between=True):
        return f"; {before}: {_WRAPPED}"
    for size in _ELEMENT_BYTES:
        if meant := _near(heaps, index - (size << 32), is_between=False):
            return f"; 2^32 x {size} bytes lower it would be {meant}: {_WRAPPED}"
    if variable := _shifted_variable(heaps, index):
        return f"; {variable}"
    return ""


def _near(heaps: Heaps, index: int, is_between: bool) -> str:
    """The live tensor that an index lies in, or shortly before; "" for none. is_between: it lies in none, and counts
    for the nearer one of its two neighbours."""
    rank, offset = divmod(index, heaps.capacity)
    past = heaps.capacity
    for owner, at in ((rank, offset), (rank + 1, offset - heaps.capacity)):
        for start, end in heaps.spans[owner] if 0 <= owner < heaps.world_size else ():
            if at >= end:
                past = at - end
                continue
            number = int(heaps.granules[(owner * heaps.capacity + start) // GRANULE_BYTES])
            found = heaps.allocations[number]
            if found is None or start - at > (min(NEAR_BYTES, past) if is_between else NEAR_BYTES):
                return ""
            if is_between and at >= start:
                return ""
            place = f"{start - at} bytes before" if at < start else f"byte {at - start} of"
            return f"{place} rank {owner}'s tensor {found.name!r} of {end - start} bytes"
    return ""


def _shifted_variable(heaps: Heaps, index: int) -> str:
    """The variable of a module from which an index lies as far as a rank's heap from another's; "" for none."""
    for ranks in range(1 - heaps.world_size, heaps.world_size):
        at = index - ranks * heaps.capacity
        if ranks and heaps.heaps_end <= at < len(heaps.memory):
            found = heaps.allocations[max(int(heaps.granules[at // GRANULE_BYTES]), 0)]
            if found is not None and at < found.end:
                return (
                    f"it is as far from variable {found.name!r} of rank {found.rank}'s module as one rank's part of a "
                    "tensor is from another's: peers cannot reach variables"
                )
    return ""
