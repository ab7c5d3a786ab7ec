"""What is known of faults: a file for each draw, added to fault by fault, and the table of tests/README.md."""

import dataclasses
import json
import os
from pathlib import Path

from tests.faults.made import KINDS, Fault, short
from tests.faults.trial import Found

HERE = Path(__file__).resolve().parent
DRAWS = HERE / "draws"
README = HERE.parent / "README.md"


class Draw:
    """The faults of one seed, in their order, and by layer how each was found."""

    def __init__(self, place, seed, commit):
        """place: its file. commit: the product code's, which may not change under a draw. Raises ValueError if the
        file is of another seed or commit."""
        self.place, self.seed, self.commit = place, seed, commit
        self.rows = {}
        if place.exists():
            kept = json.loads(place.read_text(encoding="utf-8"))
            if (kept["seed"], kept["commit"]) != (seed, commit):
                raise ValueError(
                    f"{place.name} is of seed {kept['seed']} at {kept['commit']}, not of {seed} at {commit} (--seed), "
                    "give the same, or another --name"
                )
            self.rows = {_fault(row).name: row for row in kept["faults"]}

    def faults(self):
        return [_fault(row) for row in self.rows.values()]

    def keep(self, faults):
        """Take faults as the draw's. What is known of them stays."""
        rows = {one.name: dataclasses.asdict(one) for one in faults}
        self.rows = {name: {**self.rows.get(name, {}), **row} for name, row in rows.items()}
        self._write()

    def found(self, fault, layer):
        """How a layer found a fault; None if that is not known yet."""
        row = self.rows[fault.name].get(layer)
        return Found(**row) if row is not None else None

    def add(self, fault, layer, found):
        self.rows[fault.name][layer] = {**dataclasses.asdict(found), "seconds": round(found.seconds, 1)}
        self._write()

    def _write(self):
        self.place.parent.mkdir(parents=True, exist_ok=True)
        made = {"seed": self.seed, "commit": self.commit, "faults": list(self.rows.values())}
        beside = self.place.with_suffix(".new")
        beside.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
        os.replace(beside, self.place)


def _fault(row):
    return Fault(**{one.name: row[one.name] for one in dataclasses.fields(Fault)})


def stored_draws(folder=DRAWS):
    """Return all draws, in the order of their names."""
    found = []
    for place in sorted(folder.glob("*.json")):
        kept = json.loads(place.read_text(encoding="utf-8"))
        found.append(Draw(place, kept["seed"], kept["commit"]))
    return found


def table(draws):
    """The lines of the table: for each draw who finds how many, and of the last one, by its name, all that only the
    full layer or none finds; files of older ones list them."""
    yield "| draw | product code | faults | quick layer | full layer alone | none | not looked at |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for draw in draws:
        counts = {"quick": 0, "full": 0, "none": 0, "open": 0}
        for fault in draw.faults():
            counts[_layer(draw, fault)] += 1
        numbers = " | ".join(str(counts[layer]) for layer in ("quick", "full", "none", "open"))
        yield f"| {draw.place.stem} | `{draw.commit[:8]}` | {sum(counts.values())} | {numbers} |"
    late = [(draw, one) for draw in draws[-1:] for one in draw.faults() if _layer(draw, one) in ("full", "none")]
    if late:
        yield from ("", "| not found by the quick layer | fault | found by |", "|---|---|---|")
    for draw, one in late:
        full = draw.found(one, "full")
        by = (full.by or full.how or "no test") if full is not None else "no quick test"
        does = f"{one.kind}: {_code(one.before)} to {_code(one.after)}"
        yield f"| {one.path}:{one.line} | {does} | {by} |"


def kinds():
    """The kinds of faults, as the page lists them."""
    yield from (f"- {name}: {what}" for name, what in KINDS.items())


def _layer(draw, fault):
    quick, full = draw.found(fault, "quick"), draw.found(fault, "full")
    if quick is None:
        return "open"
    return "quick" if quick.how else "full" if full is not None and full.how else "none"


def _code(text):
    return f"`{short(text)}`".replace("|", "\\|") if "`" not in text else short(text)
