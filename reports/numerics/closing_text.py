"""What a command says at its end: its table, and its study if it is one. What only those need is imported for them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from cases.record.record import Record
from reports.numerics import LEAST_WORLD_SIZES
from reports.table import table
from reports.table.sheet import room_here, wrapped
from reports.table.text import has_many, is_long


def console_report(records: Sequence[Record], folder: str = "", elsewhere: str = "") -> str:
    """What a command says at its end: its table; where it was a study, that instead of the lines that are in it.

    folder is that of the records. If it is given, a table or a study of more than text.MAX_LINES lines is replaced by
    a summary, with the command that prints the whole. elsewhere: see table.console_table.
    """
    parts, others = [], list(records)
    of_study, reason = "", ""
    sizes = {record.case.world_size for record in records}
    if len(sizes) >= LEAST_WORLD_SIZES or any(record.request.experiment.endswith("_study") for record in records):
        from reports.numerics import study

        if curves := study.studied(records):
            inside: list[Record] = []
            others = []
            for record in records:
                (inside if study.belongs(record, curves) else others).append(record)
            of_study = _shortened(inside, study.here(curves), False, folder, "study")
        else:
            reason = study.why_no_study(records, folder)
    if others or not of_study:
        is_many = bool(folder) and has_many(others)
        shown = "" if is_many else table.console_table(others, elsewhere=elsewhere)
        parts.append(_shortened(others, shown, is_many, folder, "table"))
    parts += [of_study] if of_study else []
    parts += ["\n".join(wrapped(reason, room_here()))] if reason else []
    return "\n\n".join(parts)


def _shortened(records: Sequence[Record], shown: str, is_many: bool, folder: str, verb: str) -> str:
    """What is shown, unless it is long and there is a folder for the command that prints it: then a summary."""
    if not folder or not (is_many or is_long(shown)):
        return shown
    from reports.table import brief

    return f"{brief.text(records)}\n\nthe whole {verb}: symlab {verb} {shlex.quote(folder)}"
