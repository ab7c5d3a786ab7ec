"""Refusal: why a kernel or a library can't run a case, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a case can't run; str() is the sentence that records keep.

    key is the configuration key that the refusal is about ("accumulator", "sizes", "fabric.multicast"; conf/config.yaml
    has them). reason says what is wrong; hint says what would be right, or why, and is "" where the reason says it all.
    """

    key: str
    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.hint}" if self.hint else self.reason
