"""The matrix as aligned text and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cases.assumptions import sentence_of
from cases.ops import collective
from kernels.matrix.matrix import COLUMNS, LEGEND, Row, cells
from kernels.matrix.proofs import Proof


def text(rows: Sequence[Row], proven: Sequence[Proof]) -> str:
    """A table for each op, all with the same widths, then notes and legend."""
    tables, notes = _tables(rows)
    lines_of_all = [line for lines in tables.values() for line in lines]
    widths = {name: max(len(name), *(len(line[name]) for line in lines_of_all)) for name in COLUMNS}
    parts = ["  " + "  ".join(name.ljust(widths[name]) for name in COLUMNS).rstrip()]
    for op, lines in tables.items():
        parts.append(f"{op}: {collective(op).summary}")
        parts += ["  " + "  ".join(line[name].ljust(widths[name]) for name in COLUMNS).rstrip() for line in lines]
    return "\n".join([*parts, "", *notes, *LEGEND, *_assumed(rows), *_sources(proven)]) + "\n"


def markdown(rows: Sequence[Row], proven: Sequence[Proof]) -> str:
    """One table for all ops, then notes and legend as a list."""
    tables, notes = _tables(rows)
    parts = [f"| op | {' | '.join(COLUMNS)} |", f"|{' --- |' * (len(COLUMNS) + 1)}"]
    for op, lines in tables.items():
        for number, line in enumerate(lines):
            parts.append(f"| {'' if number else op} | {' | '.join(line[name] for name in COLUMNS)} |")
    remarks = [f"- {line}" for line in (*notes, *LEGEND, *_assumed(rows), *_sources(proven))]
    return _escaped("\n".join([*parts, "", *remarks])) + "\n"


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
