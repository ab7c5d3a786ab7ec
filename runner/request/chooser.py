"""What `best` among a request's algorithms stands for, as far as requests know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from cases.case import Case

BEST = "best"
"""The word for what a table of choices has at each size, alone or in a list of algorithms (symlab/speed/best.py)."""


class Chooser(Protocol):
    """What best means in a request."""

    def name_for(self, case: Case) -> str:
        """Return the algorithm that runs a case whose algorithm is best. RequestError if there is none."""
        ...

    def described(self, case: Case) -> Mapping[str, Any] | None:
        """Return what a record says of the choice of a case; None if it was not chosen so."""
        ...

    def said(self, cases: Iterable[Case]) -> list[str]:
        """Return lines that say by what it chooses, and what has to be known of its choices for cases."""
        ...
