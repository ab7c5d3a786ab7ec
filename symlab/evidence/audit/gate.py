"""Which findings of a comparison decide its exit code."""

from __future__ import annotations

from enum import StrEnum


class Gate(StrEnum):
    """Which findings decide the exit code. The verdict names all findings whatever the gate."""

    SLOWER = "slower"
    """A time that is SLOWER, or OUTSIDE the band on its slow side."""
    DIFFERENT = "different"
    """Data that is DIFFERENT, other findings of the race checker, and a case that is missing."""
    ANY = "any"
    """Every finding."""
