"""What is known of faults: a file for each draw, added to fault by fault, and the table of tests/README.md."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from memory.atomic_file import replacing
from tests.faults.made import KINDS, Fault, short
from tests.faults.trial import Found

HERE = Path(__file__).resolve().parent
DRAWS = HERE / "draws"
README = HERE.parent / "README.md"


class Draw:
    """The faults of one seed, in their order, and how each was found."""

    def __init__(self, place: Path, seed: str = "", commit: str = "") -> None:
        """place: its file. commit: the product code's, which may not change under a draw. Raises ValueError if the
        file is of another seed or commit; without these, it is read as it is."""
        self.place, self.seed, self.commit = place, seed, commit
        self.found: dict[Fault, Found | None] = {}
        if place.exists():
            kept = json.loads(place.read_text(encoding="utf-8"))
            self.seed, self.commit = kept["seed"], kept["commit"]
            self.found = {_fault(row): Found(**row["quick"]) if row.get("quick") else None for row in kept["faults"]}
        if seed and (seed, commit) != (self.seed, self.commit):
            raise ValueError(
                f"{place.name} is of seed {self.seed} at {self.commit}, not of {seed} at {commit} (--seed), "
                "give the same, or another --name"
            )

    def add(self, fault: Fault, found: Found | None) -> None:
        """Keep what is known of a fault, in the draw's file, too."""
        self.found[fault] = found
        rows = [
            {**dataclasses.asdict(one), **({"quick": dataclasses.asdict(known)} if known else {})}
            for one, known in self.found.items()
        ]
        self.place.parent.mkdir(parents=True, exist_ok=True)
        made = {"seed": self.seed, "commit": self.commit, "faults": rows}
        with replacing(self.place) as beside:
            beside.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def _fault(row: dict[str, Any]) -> Fault:
    return Fault(**{one.name: row[one.name] for one in dataclasses.fields(Fault)})


def page(draws: Sequence[Draw]) -> Iterator[str]:
    """The lines of the page: kinds of faults, number of faults found in each draw, and each that was not."""
    yield from (f"- {name}: {what}" for name, what in KINDS.items())
    yield from ("", "| draw | product code | faults | found | not found | not tried |", "|---|---|---:|---:|---:|---:|")
    missed = []
    for draw in draws:
        known = [one for one in draw.found.values() if one is not None]
        missed += [(draw, fault) for fault, one in draw.found.items() if one is not None and not one.how]
        found = sum(bool(one.how) for one in known)
        numbers = (len(draw.found), found, len(known) - found, len(draw.found) - len(known))
        yield f"| {draw.place.stem} | `{draw.commit[:8]}` | {' | '.join(map(str, numbers))} |"
    if missed:
        yield from ("", "| not found | fault |", "|---|---|")
    for draw, one in missed:
        does = f"{one.kind}: `{short(one.before)}` to `{short(one.after)}`".replace("|", "\\|")
        yield f"| {draw.place.stem}: {one.path}:{one.line} | {does} |"
