"""How messages name ranks, and who of them said what."""

from __future__ import annotations

from collections.abc import Sequence


def named(ranks: Sequence[int]) -> str:
    """Return "rank 3" or "ranks 0, 2"."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def ranks_of(notes: Sequence[str]) -> dict[str, list[int]]:
    """Return who said each note, in the order of the first to say it. notes: one a rank, by rank."""
    ranks: dict[str, list[int]] = {}
    for rank, note in enumerate(notes):
        ranks.setdefault(note, []).append(rank)
    return ranks


def attributed(notes: Sequence[str]) -> str:
    """Return every note with its ranks: "rank 1: barrier; ranks 0, 2: allocate ..."."""
    return "; ".join(f"{named(ranks)}: {note}" for note, ranks in ranks_of(notes).items())
