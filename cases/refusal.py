"""Refusal: why a kernel or a library can't run a case, as a value; and the sentence about an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a case can't run; str() is the sentence that records keep.

    key is the configuration key that the refusal is about ("accumulator", "sizes"; runner/request/schema.py has
    them). reason says what is wrong; hint says what would be right, or why, and is "" where the reason says it all.
    Sentences that all kernels share are in kernels/spec.py, others where their Refusal is made.
    """

    key: str
    reason: str
    hint: str = ""

    def __post_init__(self) -> None:
        if not self.key.strip() or not self.reason.strip():
            raise ValueError("refusal: key and reason are not empty")

    def __str__(self) -> str:
        return f"{self.reason}: {self.hint}" if self.hint else self.reason


def unknown_name(what: str, name: str, known: Sequence[str]) -> str:
    """Return the sentence about an unknown name, with the nearest known ones. what: "op"."""
    near = difflib.get_close_matches(name, known, n=4, cutoff=0.5)
    if near:
        return f"unknown {what} {name!r}: did you mean {' or '.join(near)}?"
    return f"unknown {what} {name!r}: there is {', '.join(known)}"
