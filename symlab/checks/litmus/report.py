"""A judgement as text: a table of final states, why some are forbidden, and whether each condition holds."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from symlab.checks.litmus.model import AXIOMS
from symlab.checks.litmus.outcomes import MAXIMUM_EXPLAINED, Judgement, Outcome

WIDTH = 120
SHOWN_VALUES = 1 << 16
"""Numbers from here on are shown in hexadecimal: halves of a 64-bit unit."""


State = tuple[tuple[int | None, ...], tuple[str, ...]]
"""Values and blocked threads of an outcome."""


@dataclass(frozen=True, slots=True)
class Column:
    """What something else than the judge says of each final state: cells under a head, and notes behind the verdict."""

    head: str
    cells: Mapping[State, str]
    notes: Mapping[State, str] = field(default_factory=dict)


def text(found: Judgement, columns: Sequence[Column] = (), remarks: Sequence[str] = ()) -> str:
    """Return all that the model says of a program, for a terminal, with columns and remarks of others."""
    lines = textwrap.wrap(f"{found.program.name}: {found.program.title}", WIDTH, subsequent_indent="  ")
    lines += ["", *_table(found, columns)]
    for one in found.outcomes:
        if one.why is not None:
            lines += ["", *_reason(found, one)]
    lines += ["", *_remarks(found), *remarks]
    for condition in found.program.conditions:
        lines.append(f"{condition.text}: {'holds' if found.holds(condition) else 'FAILS'}")
    return "\n".join(lines)


def _table(found: Judgement, columns: Sequence[Column]) -> list[str]:
    heads = [*(str(seen) for seen in found.seen), *(one.head for one in columns)]
    states = [(one.values, one.blocked) for one in found.outcomes]
    rows = [[*map(_shown, state[0]), *(column.cells.get(state, "-") for column in columns)] for state in states]
    notes = [[column.notes[state] for column in columns if state in column.notes] for state in states]
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = ["  " + "  ".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True)) + "  verdict"]
    for one, row, note in zip(found.outcomes, rows, notes, strict=True):
        cells = "  ".join(f"{value:>{width}}" for value, width in zip(row, widths, strict=True))
        lines.append(f"  {cells}  {'    '.join([_verdict(one), *note])}")
    return lines


def _shown(value: int | None) -> str:
    if value is None:
        return "-"
    return hex(value) if value >= SHOWN_VALUES else str(value)


def _verdict(one: Outcome) -> str:
    if one.why is not None:
        return f"forbidden  {', '.join(f'{name} ({AXIOMS[name]})' for name in one.why.axioms)}"
    parts = ["allowed"]
    if one.has_race:
        parts.append("data race")
    if one.blocked:
        parts.append(f"{', '.join(one.blocked)} wait{'s' * (len(one.blocked) == 1)} at a barrier for ever")
    return "    ".join(parts)


def _reason(found: Judgement, one: Outcome) -> list[str]:
    """The contradiction of a forbidden state, step by step."""
    assert one.why is not None
    state = ", ".join(
        f"{seen} == {_shown(value)}" for seen, value in zip(found.seen, one.values, strict=True) if value is not None
    )
    if one.blocked:
        state += f" ({', '.join(one.blocked)} waiting)"
    lines = [f"{state.strip()} contradicts {one.why.axiom} ({AXIOMS[one.why.axiom]}):"]
    width = max(len(name) for name, _ in one.why.steps)
    lines += [f"  {name:<{width}}  {relation}" for name, relation in one.why.steps]
    return [*lines, f"  {one.why.steps[0][0]}"]


def _remarks(found: Judgement) -> list[str]:
    lines = [f"{found.executions:,} execution{'s' * (found.executions != 1)} allowed"]
    if not found.is_explained:
        lines.append(f"forbidden states are not listed: more than {MAXIMUM_EXPLAINED:,} executions to look at")
    if found.has_deadlock:
        lines.append("in some, no thread ends: conditions are about the others")
    if found.mixed_race is not None:
        first, second = found.mixed_race
        lines.append(
            f"undefined: {first} and {second} race and have different sizes (8.7.2), so that no condition holds"
        )
    return lines


def summary(found: Sequence[Judgement]) -> str:
    """Return a table with one line for each program, for a terminal."""
    width = max(len(one.program.name) for one in found)
    lines = [f"{'program':<{width}}  allowed  forbidden  {'conditions':<10}  forbidden by"]
    for one in found:
        held = [one.holds(condition) for condition in one.program.conditions]
        number = len(one.allowed)
        conditions = "hold" if all(held) else f"{held.count(False)} of {len(held)} FAIL"
        forbidden = str(len(one.outcomes) - number) if one.is_explained else "-"
        axioms = Counter(outcome.why.axiom for outcome in one.outcomes if outcome.why is not None)
        by = ", ".join(name for name in AXIOMS if axioms[name])
        lines.append(f"{one.program.name:<{width}}  {number:>7}  {forbidden:>9}  {conditions:<10}  {by}".rstrip())
    return "\n".join(lines)
