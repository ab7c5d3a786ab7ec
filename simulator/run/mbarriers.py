"""mbarrier objects: barriers in a block's shared memory that also count the bytes of bulk copies.

An object has a phase, a count of arrivals that its phase still waits for, and a transaction count: bytes that were
announced (expect_tx) and have not been copied yet. A phase is over when both are zero; the next begins at once, with as
many arrivals to wait for as the object was made with. Who waits asks for the parity of a phase, and so can tell the
current phase from the one before it, and no other.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_COUNT = (1 << 20) - 1
"""Of arrivals, and of bytes in either direction (PTX ISA, "Contents of the mbarrier object")."""


class MisusedBarrier(Exception):
    """Something that the PTX ISA leaves undefined was done to an mbarrier object; the message says what."""


@dataclass(slots=True)
class MBarrier:
    """One object: expected arrivals in each phase; phase counts from 0; pending arrivals and bytes of this phase."""

    expected: int
    phase: int = 0
    pending: int = 0
    bytes_due: int = 0

    def __post_init__(self) -> None:
        self.pending = self.expected

    def expect(self, size_bytes: int) -> None:
        """Announce bytes."""
        self._count(size_bytes)

    def arrive(self, count: int) -> None:
        if count > self.pending:
            raise MisusedBarrier(f"{count} arrivals where {self} waits for {self.pending}")
        self.pending -= count
        self._turn()

    def complete(self, size_bytes: int) -> None:
        """Bytes have been copied."""
        self._count(-size_bytes)
        self._turn()

    def _count(self, size_bytes: int) -> None:
        self.bytes_due += size_bytes
        if abs(self.bytes_due) > MAX_COUNT:
            raise MisusedBarrier(f"{self}: its count of bytes has left the range of {-MAX_COUNT:,} to {MAX_COUNT:,}")

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
