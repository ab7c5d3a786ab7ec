"""Why a mutant that nothing finds is no bug: arguments.json, each entry for all mutants that its patterns match."""

import json
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path

PLACE = Path(__file__).resolve().parent / "arguments.json"


@dataclass(frozen=True, slots=True)
class Argument:
    """Patterns (of fnmatch) for a kernel's name, opcode, place with number ("file.py `text` #1") and change, and why
    such a mutant is no bug.

    litmus: the name of a program of tests/mutants/litmus for which the judge allows what must not happen, of a mutant
    that is a bug in the model, though no run shows it; else "".
    """

    kernel: str
    opcode: str
    place: str
    change: str
    why: str
    litmus: str = ""

    def covers(self, kernel, mutant):
        """Return whether it is about a mutant of a kernel."""
        place = f"{mutant.place} #{mutant.nth}"
        pairs = ((kernel, self.kernel), (mutant.opcode, self.opcode), (place, self.place))
        return all(fnmatchcase(*pair) for pair in (*pairs, (mutant.change, self.change)))


def arguments(text):
    """Return the arguments of a file's text. Raises ValueError for an entry without one of the parts."""
    names = {one.name for one in fields(Argument)}
    for entry in (entries := json.loads(text)):
        if entry.keys() | {"litmus"} != names or not entry["why"].strip():
            raise ValueError(f"arguments.json: {entry} has other parts than {', '.join(sorted(names))}")
    return tuple(Argument(**entry) for entry in entries)


def argued(known, kernel, mutant):
    """Return the first argument that covers a mutant."""
    return next((one for one in known if one.covers(kernel, mutant)), None)
