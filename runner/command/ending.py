"""The last lines that a command says."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from cases.record.record import Record
from reports.record.seal import digest_of
from reports.table.average import too_slow
from reports.table.text import has_many, is_long, summary
from runner.command.console import Console, failures
from runner.command.to_mlflow import short_path

TOLD_BELOW = "told under 'failed', on standard error"
"""Where the table of a command refers to for what went wrong."""


def report(
    records: Sequence[Record], expected: int, folder: Path, console: Console, stopped: str, is_lost: bool
) -> None:
    """Say what was done of a number of expected cases, what went wrong, and where the records lie.

    stopped: why the work was given up, "" if it was not. is_lost: workers of a launcher are why.
    """
    shown = short_path(folder)
    if records and not console.is_quiet:
        console.say(_table(records, shown))
    console.announce(summary(records, expected))
    failed = failures(records, shown)
    if failed:
        console.warn("\n".join(["failed:", *failed]))
    if records and all(str(record.status) == "REFUSED" for record in records):
        console.warn("symlab: every case was refused: nothing ran")
    if slow := too_slow(records):
        console.warn(f"symlab: error: {slow}")
    if stopped:
        given_up = "" if is_lost else "the work was stopped, "
        console.warn(f"symlab: error: {stopped}; {given_up}what is finished is intact")
    console.announce(f"records: {shown}{_digest(folder)}")


def _table(records: Sequence[Record], folder: str) -> str:
    """The table; of more than text.MAX_LINES lines a summary, with the command that prints the whole."""
    from reports.table import table

    whole = "" if has_many(records) else table.console_table(records, elsewhere=TOLD_BELOW)
    if whole and not is_long(whole):
        return whole
    from reports.table import brief

    return f"{brief.text(records)}\n\nthe whole table: symlab table {shlex.quote(folder)}"


def _digest(folder: Path) -> str:
    """The digest of a folder's manifest in parentheses; "" if the folder could not be sealed."""
    try:
        return f" ({digest_of(folder)})"
    except ValueError:
        return ""
