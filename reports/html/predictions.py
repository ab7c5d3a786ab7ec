"""The part of the page on predictions beside measured times: every case with its terms, and those far slower first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from cases.record.prediction import TERM_NAMES, PredictedTerms
from cases.record.record import Record
from reports.html.blocks import Block, Notes, Part, Table
from reports.table import predictions
from reports.table.compare import Row, rows, split
from reports.table.sheet import Formats, Line, Sheet, line_of
from reports.table.text import counted, place_text
from reports.table.timed_table import time_text

_TERMS = tuple(one.name for one in fields(PredictedTerms))
_COLUMNS = (
    *("size (B)", "algorithm", "place", "measured (us)", predictions.PREDICTED, "interval (us)", predictions.RATIO),
    *("verdict", "regime", *(name.removesuffix("_us") for name in _TERMS), "on the path", "section"),
)
_TEXTUAL = frozenset({"algorithm", "place", "interval (us)", "verdict", "regime", "on the path", "section"})


def part(records: Sequence[Record]) -> Part | None:
    """Return the part; None if no timing has a prediction or the reason why it has none."""
    if not predictions.were_asked(records):
        return None
    judged = [(section.heading, row) for section in split(records)[0] for row in rows(section)]
    shown = [(heading, row) for heading, row in judged if predictions.predicted_us(row) is not None]
    shown.sort(key=lambda pair: (not predictions.is_far_slower(pair[1]), -(predictions.ratio(pair[1]) or 0.0)))
    some = [row for _, row in judged]
    slower = predictions.slower_lines(some)
    notes = [f"{counted(len(slower), 'case')} of {len(shown)} slower than predicted", *slower]
    terms = "; ".join(f"{name.removesuffix('_us')}: {meaning}" for name, meaning in TERM_NAMES.items())
    longer = "of link with memory and more only the longer one counts"
    notes += [*predictions.captions(some)[:1], f"terms in us, {longer}: {terms}"]
    notes += predictions.remark_lines([record for row in some for record in row.records])
    blocks: list[Block] = [Notes(tuple(notes))]
    if shown:
        lines = tuple(_line(heading, row) for heading, row in shown)
        numeric = frozenset(_COLUMNS) - _TEXTUAL
        blocks.append(Table(Sheet("predicted, beside measured", _COLUMNS, (lines,), numeric), heading=False))
    return Part("predicted", "Predicted beside measured", tuple(blocks))


def _line(heading: str, row: Row) -> Line:
    told = next(one for one in map(predictions.told_of, row.records) if one is not None)
    found = predictions.values(row)
    measured_us, ratio = row.figure("median_us"), predictions.ratio(row)
    assert measured_us is not None
    assert ratio is not None
    steps = sorted(told.path_us.items(), key=lambda one: -one[1])
    times = {"measured (us)": measured_us, predictions.PREDICTED: found["predicted_us"]}
    terms = {name.removesuffix("_us"): getattr(told.terms, name) for name in _TERMS}
    values = {
        "size (B)": row.size_bytes,
        "algorithm": f"{row.records[0].case.op}/{row.algorithm}",
        "place": place_text(row.placement),
        **times,
        "interval (us)": f"{time_text(found['predicted_low_us'])} to {time_text(found['predicted_high_us'])}",
        predictions.RATIO: ratio,
        "verdict": predictions.verdict(row),
        "regime": told.regime,
        **terms,
        "on the path": ", ".join(f"{kind} {value:.2f} us" for kind, value in steps if value) or None,
        "section": heading,
    }
    formats: Formats = {
        "size (B)": str,
        **dict.fromkeys(times, time_text),
        **dict.fromkeys((predictions.RATIO, *terms), "{:.2f}".format),
    }
    styles = {"on the path": "text", "section": "text"}
    if predictions.is_far_slower(row):
        styles |= dict.fromkeys((predictions.RATIO, "verdict"), "bold red")
    return line_of(values, formats, styles)
