"""Which forms of a PTX module the simulator does not have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from simulator.ptx.ir import Unsupported
from simulator.run.decode import unsupported_forms

_GUARD = re.compile(r"^@!?\S+\s+")


@dataclass(frozen=True, slots=True)
class Missing:
    """A form that a module has and the simulator does not: the instruction with its qualifiers, its PTX lines in order
    and the reason."""

    form: str
    lines: tuple[int, ...]
    reason: str


def missing_forms(ptx: str) -> tuple[Missing, ...]:
    """Return what a module has that the simulator does not, the most frequent first.

    It is all of the module's kernels and of what they may call. Raises PtxSyntaxError for text without structure.
    """
    lines: dict[tuple[str, str], list[int]] = {}
    for one in unsupported_forms(ptx):
        lines.setdefault((_form(one), one.reason), []).append(one.line)
    found = [Missing(form, tuple(sorted(set(places))), reason) for (form, reason), places in lines.items()]
    return tuple(sorted(found, key=lambda one: (-len(one.lines), one.lines)))


def _form(one: Unsupported) -> str:
    """The instruction and its qualifiers; of a declaration, its first words."""
    text = _GUARD.sub("", one.text)
    words = text.split()
    if text.startswith("."):
        return " ".join(word for word in words if word.startswith(".")) or words[0]
    return words[0].rstrip(";") if words else "an empty statement"
