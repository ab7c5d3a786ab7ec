"""mbarrier objects: barriers in a block's shared memory that also count the bytes of bulk copies.

An object has a phase, a count of arrivals that its phase still waits for, and a transaction count: bytes that were
announced (expect_tx) and have not been copied yet. A phase is over when both are zero; the next begins at once, with as
many arrivals to wait for as the object was made with, less those that were dropped. Who waits asks for the parity of a
phase, or for the phase that a state names, and so can tell the current phase from the one before it, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.isa.spaces import BARRIER_BYTES
from simulator.memory.space import LaneFault, blamed

Lanes = npt.NDArray[Any]
MAX_COUNT = (1 << 20) - 1
"""Of arrivals, and of bytes in either direction (PTX ISA, "Contents of the mbarrier object")."""
_COUNT_BITS = 20


@dataclass(slots=True)
class MBarrier:
    """One object: where it is; expected arrivals in each phase; phase counts from 0; pending arrivals and bytes of this
    phase. What the PTX ISA leaves undefined raises LaneFault (of lane 0)."""

    place: str
    expected: int
    phase: int = 0
    pending: int = 0
    bytes_due: int = 0

    def __post_init__(self) -> None:
        self.pending = self.expected

    def state(self) -> int:
        """Return what an arrival gives before it counts: 64 bits that name the phase and its pending arrivals."""
        return self.phase << _COUNT_BITS | self.pending

    def expect(self, size_bytes: int) -> None:
        """Announce bytes that will be copied."""
        self._count(size_bytes)

    def arrive(self, count: int, partial: bool = False, drops: bool = False) -> None:
        """Count arrivals; partial: which may not be the last of the phase (.noComplete); drops: which the phases that
        follow don't expect."""
        if drops and count > self.expected:
            raise self._misused(f"{count} arrivals dropped where {self} expects {self.expected} in a phase")
        self.expected -= count * drops
        if partial and count >= self.pending and self.bytes_due == 0:
            raise self._misused(f"{count} arrivals with .noComplete would end the phase of {self}")
        if count > self.pending:
            raise self._misused(f"{count} arrivals where {self} waits for {self.pending}")
        self.pending -= count
        self._turn()

    def add_pending(self, count: int) -> None:
        """Wait for more arrivals in this phase alone."""
        self.pending += count
        if self.pending > MAX_COUNT:
            raise self._misused(f"{self}: it waits for more than {MAX_COUNT:,} arrivals")

    def complete(self, size_bytes: int) -> None:
        """Count bytes as copied."""
        self._count(-size_bytes)
        self._turn()

    def is_over(self, state: int) -> bool:
        """Return whether the phase that a state names is over."""
        phase = state >> _COUNT_BITS
        if phase not in (self.phase, self.phase - 1):
            raise self._misused(f"a wait for phase {phase} of {self}: it tells its current phase and the one before")
        return phase != self.phase

    def _count(self, size_bytes: int) -> None:
        self.bytes_due += size_bytes
        if abs(self.bytes_due) > MAX_COUNT:
            raise self._misused(f"{self}: its count of bytes has left the range of {-MAX_COUNT:,} to {MAX_COUNT:,}")

    def _misused(self, text: str) -> LaneFault:
        return LaneFault(0, f"{self.place}: {text}")

    def _turn(self) -> None:
        if self.pending == 0 and self.bytes_due == 0:
            self.phase += 1
            self.pending = self.expected

    def __str__(self) -> str:
        """ "an mbarrier in phase 3 (1 of 2 arrivals and 4096 bytes to come)"."""
        return (
            f"an mbarrier in phase {self.phase} "
            f"({self.pending} of {self.expected} arrivals and {self.bytes_due} bytes to come)"
        )


@dataclass(slots=True)
class Mbarriers:
    """The objects of one batch by key, which is an object's byte in the batch's shared memory (row_bytes a block).

    asked: the key that a lane waited for last, for the report of a deadlock. is_object: which 8 bytes of the batch's
    shared memory are objects, empty before the first. What misuses an object raises LaneFault (of lane 0).
    """

    row_bytes: int
    rows: int
    objects: dict[int, MBarrier] = field(default_factory=dict)
    asked: int = -1
    is_object: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def init(self, key: int, count: int) -> None:
        """Make an mbarrier; each of its phases expects the given number of arrivals."""
        if not 1 <= count <= MAX_COUNT:
            raise LaneFault(0, f"an mbarrier for {count} arrivals; it takes 1 to {MAX_COUNT:,}")
        if key in self.objects:
            raise LaneFault(0, f"{self.place(key)} holds {self.objects[key]} already")
        if not len(self.is_object):
            self.is_object = np.zeros(self.rows * self.row_bytes // BARRIER_BYTES, np.bool_)
        self.objects[key] = MBarrier(self.place(key), count)
        self.is_object[key // BARRIER_BYTES] = True

    def invalidate(self, key: int) -> None:
        """Make an mbarrier's place ordinary memory again."""
        self.at(key)
        del self.objects[key]
        self.is_object[key // BARRIER_BYTES] = False

    def check_write(self, places: Lanes, size_bytes: int) -> None:
        """Raise LaneFault if a lane's write of size_bytes to its place in the batch's shared memory touches an object.

        Only mbarrier operations may change one, until mbarrier.inval.
        """
        first, last = places // BARRIER_BYTES, (places + size_bytes - 1) // BARRIER_BYTES
        units = first[:, None] + np.arange(int((last - first).max()) + 1)
        touched = self.is_object[np.minimum(units, last[:, None])]
        if touched.any():
            lane, column = np.argwhere(touched)[0].tolist()
            key = int(units[lane, column]) * BARRIER_BYTES
            text = "which only mbarrier operations may change (before mbarrier.inval)"
            raise LaneFault(lane, f"a write of {size_bytes} bytes over {self.told(key)}, {text}")

    def phase(self, key: int) -> int:
        """Return the number of an mbarrier's current phase; 0 where there is none."""
        return self.objects[key].phase if key in self.objects else 0

    def over(self, keys: Lanes, states: Lanes) -> npt.NDArray[np.bool_]:
        """Return for each lane whether the phase that its state names is over."""
        pairs, back = np.unique(np.stack([keys, states.astype(np.int64)]), axis=1, return_inverse=True)
        found = np.zeros(pairs.shape[1], np.bool_)
        for number, (key, state) in enumerate(pairs.T.tolist()):
            with blamed(int(np.argmax(back.reshape(-1) == number))):
                found[number] = self.at(key).is_over(state)
        out: npt.NDArray[np.bool_] = found[back.reshape(-1)]
        return out

    def pending_of(self, states: Lanes) -> Lanes:
        """Return the pending arrivals that states name."""
        return states & np.uint64(MAX_COUNT)

    def at(self, key: int) -> MBarrier:
        """Return an object. Raises LaneFault where none is."""
        found = self.objects.get(key)
        if found is None:
            raise LaneFault(0, f"{self.place(key)} holds no mbarrier")
        return found

    def place(self, key: int) -> str:
        """ "byte 0x40 of shared memory"."""
        return f"byte {key % self.row_bytes:#x} of shared memory"

    def told(self, key: int) -> str:
        """ "an mbarrier in phase 0 (1 of 1 arrivals and 0 bytes to come) at byte 0x40 of shared memory"."""
        return f"{self.objects[key]} at {self.place(key)}"
