"""Which forms of PTX the simulator has: a table of all of them, and what of a module is not among them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simulator.isa import TABLE
from simulator.isa.registry import TYPES, neutral_qualifiers
from simulator.ptx.ir import Unsupported
from simulator.run.decode import unsupported_forms

LATER = ("ldmatrix", "stmatrix", "movmatrix", "mma", "wgmma", "wmma", "tcgen05", "tensormap", "cp.async.bulk.tensor")
"""Forms that are planned: matrices and tensor maps."""

_GUARD = re.compile(r"^@!?\S+\s+")


@dataclass(frozen=True, slots=True)
class Missing:
    """A form that a module has and the simulator does not: the instruction with its qualifiers, its PTX lines in order,
    the reason, and whether it is planned."""

    form: str
    lines: tuple[int, ...]
    reason: str
    is_planned: bool


def missing_forms(ptx: str) -> tuple[Missing, ...]:
    """Return what a module has that the simulator does not, the most frequent first.

    It is all of the module's kernels and of what they may call. Raises PtxSyntaxError for text without structure.
    """
    lines: dict[tuple[str, str], list[int]] = {}
    for one in unsupported_forms(ptx):
        lines.setdefault((_form(one), one.reason), []).append(one.line)
    found = [
        Missing(form, tuple(sorted(set(places))), reason, _is_planned(form)) for (form, reason), places in lines.items()
    ]
    return tuple(sorted(found, key=lambda one: (-len(one.lines), one.lines)))


def _form(one: Unsupported) -> str:
    """The instruction and its qualifiers; of a declaration, its first words."""
    text = _GUARD.sub("", one.text)
    words = text.split()
    if text.startswith("."):
        return " ".join(word for word in words if word.startswith(".")) or words[0]
    return words[0].rstrip(";") if words else "an empty statement"


def _is_planned(form: str) -> bool:
    return any(form == one or form.startswith(f"{one}.") for one in LATER)


@dataclass(frozen=True, slots=True)
class Row:
    """The forms of one opcode: their number, the qualifiers and the types that occur, and the qualifiers that are taken
    and are in no key."""

    opcode: str
    count: int
    qualifiers: tuple[str, ...]
    types: tuple[str, ...]
    neutral: tuple[str, ...]


def rows(keys: Iterable[str] = tuple(TABLE)) -> tuple[Row, ...]:
    """Return a row for each opcode, by name."""
    counts: Counter[str] = Counter()
    words: dict[str, set[str]] = {}
    for key in keys:
        opcode, *rest = key.split(".")
        counts[opcode] += 1
        words.setdefault(opcode, set()).update(rest)
    return tuple(
        Row(
            opcode,
            counts[opcode],
            tuple(sorted(found - TYPES)),
            tuple(sorted(found & TYPES, key=_by_size)),
            tuple(sorted(neutral_qualifiers(opcode) - found)),
        )
        for opcode, found in sorted(words.items())
    )


def _by_size(name: str) -> tuple[str, int, str]:
    digits = re.findall(r"\d+", name)
    return name.rstrip("0123456789x"), int(digits[0]) if digits else 0, name


def text(found: Sequence[Row]) -> str:
    """Return a line for each opcode: its number of forms, qualifiers and types, and qualifiers that change no form."""
    width = max(len(row.opcode) for row in found)
    lines = []
    for row in found:
        also = f"  also {_listed(row.neutral)}" if row.neutral else ""
        lines.append(f"{row.opcode:<{width}}  {row.count:>4}  {_listed((*row.qualifiers, *row.types))}{also}".rstrip())
    return "\n".join(lines)


def _listed(words: Sequence[str]) -> str:
    return " ".join(f".{word}" for word in words)
