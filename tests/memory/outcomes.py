"""What programs on ranks come to."""

from __future__ import annotations

from typing import Any


def good(outcomes: list[Any]) -> list[Any]:
    """Return what each rank's program returned; raise the first error that one raised."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return outcomes
