"""The matrix for people and for programs: aligned text, Markdown, JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from cases.assumptions import sentence_of
from cases.ops import collective
from kernels.matrix.matrix import COLUMNS, LEGEND, Row, cells, exceptions
from kernels.matrix.proofs import Proof


def text(rows: Sequence[Row], proven: Sequence[Proof], width: int | None = None) -> str:
    """A table for each op, all with the same widths, then notes and legend.

    width: the maximum number of characters of a line; None for any number. Where the tables are wider, a kernel's cells
    have a line each; all other lines are wrapped.
    """
    tables, notes = _tables(rows)
    lines_of_all = [line for lines in tables.values() for line in lines]
    widths = {name: max(len(name), *(len(line[name]) for line in lines_of_all)) for name in COLUMNS}
    is_stacked = width is not None and 2 + sum(widths.values()) + 2 * (len(COLUMNS) - 1) > width
    longest = max(map(len, COLUMNS))
    parts = [] if is_stacked else ["  " + "  ".join(name.ljust(widths[name]) for name in COLUMNS).rstrip()]
    for op, lines in tables.items():
        parts += _wrapped(f"{op}: {collective(op).summary}", width)
        for line in lines:
            if is_stacked:
                cells = [f"{name.ljust(longest)} {line[name]}" for name in COLUMNS if line[name].strip()]
                parts += [*(part for cell in cells for part in _wrapped(cell, width)), ""]
            else:
                parts.append("  " + "  ".join(line[name].ljust(widths[name]) for name in COLUMNS).rstrip())
    said = [part for one in (*notes, *LEGEND, *_assumed(rows), *_sources(proven)) for part in _wrapped(one, width)]
    return "\n".join([*parts, *([] if is_stacked else [""]), *said]) + "\n"


def _wrapped(line: str, width: int | None) -> list[str]:
    return [line] if width is None else textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)


def markdown(rows: Sequence[Row], proven: Sequence[Proof]) -> str:
    """One table for all ops, then notes and legend as a list."""
    tables, notes = _tables(rows)
    parts = [f"| op | {' | '.join(COLUMNS)} |", f"|{' --- |' * (len(COLUMNS) + 1)}"]
    for op, lines in tables.items():
        for number, line in enumerate(lines):
            parts.append(f"| {'' if number else op} | {' | '.join(line[name] for name in COLUMNS)} |")
    remarks = [f"- {line}" for line in (*notes, *LEGEND, *_assumed(rows), *_sources(proven))]
    return _escaped("\n".join([*parts, "", *remarks])) + "\n"


def json_text(rows: Sequence[Row]) -> str:
    """A list with one object a kernel: every cell by itself, nothing shortened."""
    return json.dumps([_object(row) for row in rows], indent=1) + "\n"


def _tables(rows: Sequence[Row]) -> tuple[dict[str, list[Mapping[str, str]]], list[str]]:
    """Lines of cells for each op, and the notes that they name."""
    numbers: dict[str, int] = {}

    def note(words: str) -> str:
        return f"[{numbers.setdefault(words, len(numbers) + 1)}]"

    tables: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        tables.setdefault(row.spec.op, []).append(cells(row, note))
    return tables, [f"[{number}] {words}" for words, number in numbers.items()]


def _assumed(rows: Sequence[Row]) -> list[str]:
    """What kernels rely on beyond PTX: a line for each assumption, with their names."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name in row.spec.assumptions:
            found.setdefault(name, []).append(row.spec.name)
    lines = [f"assumed of hardware beyond PTX: {sentence_of(name)}: {', '.join(who)}" for name, who in found.items()]
    return lines or ["assumed of hardware beyond PTX: nothing, by any of these kernels"]


def _sources(proven: Sequence[Proof]) -> list[str]:
    """When each machine ran the cases, from which commit, and where the code digests come from if added later."""
    return [
        f"proven: {one.machine}, {one.date}, commit {one.commit[:12]}{one.code_from and f'; code {one.code_from}'}"
        for one in proven
    ]


def _escaped(text: str) -> str:
    """Text whose brackets and asterisks mean nothing to Markdown."""
    return text.replace("[", "\\[").replace("*", "\\*")


def _object(row: Row) -> dict[str, Any]:
    spec = row.spec
    return {
        "op": spec.op,
        "algorithm": spec.algorithm,
        "summary": spec.summary,
        "takes": [
            {"dtype": dtype, "accumulator": accumulator, "reduction": reduction, "archs": list(archs)}
            for (dtype, accumulator, reduction), archs in row.taken.items()
        ],
        "exceptions": exceptions(row),
        "placements": list(spec.placements),
        "needs_multicast": spec.needs_multicast,
        "needs_alignment": row.is_aligned,
        "max_size_bytes": spec.max_size_bytes,
        "max_sizes": {str(ranks): most for ranks, most in spec.max_sizes.items()},
        "assumptions": list(spec.assumptions),
        "world_sizes": list(row.world_sizes),
        "proven": [
            {
                "machine": proof.machine,
                "date": proof.date,
                "commit": proof.commit,
                "passed": tally.passed,
                "refused": tally.refused,
                "world_sizes": list(tally.world_sizes),
                "before_a_change": row.is_before_a_change(tally),
                "code": tally.code,
            }
            for simulated in (True, False)
            for proof, tally in row.tallies(simulated)
        ],
    }
