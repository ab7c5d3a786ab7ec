"""The noun of these checks: two statements of a set that can't both be true."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contradiction:
    """item: the number of the checklist's item that it belongs to. sentence: what contradicts what, and where."""

    item: int
    sentence: str
