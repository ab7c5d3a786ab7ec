"""What tables say of predictions beside measured times. They have columns for them only where some case has one.

A row's predicted time is the median over its worlds; its ratio is the measured median over that. What is predicted is
always called so, and is in no curve.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from cases.record.prediction import PredictedTime
from cases.record.record import Record
from reports.table.compare import Row
from reports.table.text import counted, place_text, size_text

PREDICTED, RATIO = "predicted (us)", "meas/pred"
"""The columns."""

MEANING = (
    f"{PREDICTED}: by the model of symlab/speed/predict, from the simulated path and the floors of {{gpus}}; never "
    f"measured; {RATIO}: the measured time over it"
)
WIDE_MEANING = (
    "predicted: microseconds by the model of symlab/speed/predict, from the simulated path and the floors of {gpus}, "
    "never measured; in brackets the measured time over them"
)
MAX_SHOWN = 5
"""Maximum number of slower cases that a table names; a report has all."""


def told_of(record: Record) -> PredictedTime | None:
    """Return the predicted time of a record; None if it has none."""
    return record.prediction.time if record.prediction is not None else None


def were_asked(records: Iterable[Record]) -> bool:
    """Return whether some timing has a prediction, or the reason why it has none."""
    return any(record.prediction is not None for record in records)


def predicted_us(row: Row) -> float | None:
    """Return the predicted time of a row in microseconds; None where no world has one."""
    return _median(row, "time_us")


def ratio(row: Row) -> float | None:
    """Return a row's measured time over the predicted one."""
    measured, predicted = row.figure("median_us"), predicted_us(row)
    return None if measured is None or predicted is None else measured / predicted


def is_far_slower(row: Row) -> bool:
    """Return whether a row's measured time is above the interval of its prediction."""
    measured, high = row.figure("median_us"), _median(row, "high_us")
    return measured is not None and high is not None and measured > high


def verdict(row: Row) -> str:
    """Return where a row's measured time is: "slower than predicted", "faster than predicted", "as predicted"."""
    measured, low = row.figure("median_us"), _median(row, "low_us")
    is_faster = measured is not None and low is not None and measured < low
    return "slower than predicted" if is_far_slower(row) else "faster than predicted" if is_faster else "as predicted"


def style(row: Row) -> str:
    """Return the style of the ratio's cell."""
    return "bold red" if is_far_slower(row) else ""


def values(row: Row) -> dict[str, Any]:
    """Return a row's prediction as raw values; None for what does not exist."""
    told = next((one for one in map(told_of, row.records) if one is not None), None)
    names = {"predicted_us": "time_us", "predicted_low_us": "low_us", "predicted_high_us": "high_us"}
    found: dict[str, Any] = {key: _median(row, name) for key, name in names.items()}
    found |= {"measured_over_predicted": ratio(row), "predicted_regime": told.regime if told else None}
    found |= {"predicted_gpu": told.gpu if told else None, "far_slower": is_far_slower(row) if told else None}
    return found | {"not_predicted": ", ".join(_reasons(row.records)) or None}


def wide_column(contestant: str) -> str:
    """Return the column of a contestant's predicted times in a table with a column a contestant."""
    return f"{contestant} predicted"


def captions(judged: Sequence[Row], is_wide: bool = False) -> list[str]:
    """Return what must be said below a table with predictions: what they are, the cases that are far slower, remarks,
    and why cases have none. is_wide: of a table with a column a contestant."""
    records = [record for row in judged for record in row.records]
    if not were_asked(records):
        return []
    told = [one for one in map(told_of, records) if one is not None]
    meaning = WIDE_MEANING if is_wide else MEANING
    lines = [meaning.format(gpus=", ".join(sorted({one.gpu for one in told})))] if told else []
    slower = slower_lines(judged)
    lines += slower[:MAX_SHOWN]
    if len(slower) > MAX_SHOWN:
        lines.append(f"{counted(len(slower) - MAX_SHOWN, 'case')} more slower than predicted: symlab html lists all")
    return [*lines, *remark_lines(records)]


def slower_lines(judged: Sequence[Row]) -> list[str]:
    """Return a line for each row that is far slower than predicted, the largest ratio first: what the path says."""
    slower = sorted(filter(is_far_slower, judged), key=lambda row: -(ratio(row) or 0.0))
    return [f"slower than predicted: {name_of(row)}: {_slowest(row).sentence()}" for row in slower]


def remark_lines(records: Sequence[Record]) -> list[str]:
    """Return what makes predictions worth less than their intervals say, and why cases have none."""
    remarks = dict.fromkeys(remark for record in records if (told := told_of(record)) for remark in told.remarks)
    reasons = _reasons(records)
    lines = [f"predicted, {counted(count, 'time')}: {one}" for one, count in _counted(records, remarks).items()]
    return [*lines, *(f"not predicted, {counted(count, 'time')}: {reason}" for reason, count in reasons.items())]


def name_of(row: Row) -> str:
    """Return how a row is called in a sentence: "all_reduce/one_shot 64 KiB out of place"."""
    case = row.records[0].case
    return f"{case.op}/{row.algorithm} {size_text(row.size_bytes)} {place_text(case.placement)}"


def _counted(records: Sequence[Record], remarks: Iterable[str]) -> dict[str, int]:
    told = [one for one in map(told_of, records) if one is not None]
    return {remark: sum(remark in one.remarks for one in told) for remark in remarks}


def _reasons(records: Sequence[Record]) -> dict[str, int]:
    """Why timings have no predicted time, with the number of those."""
    found: dict[str, int] = {}
    for record in records:
        if record.prediction is not None and record.prediction.time is None:
            found[record.prediction.reason] = found.get(record.prediction.reason, 0) + 1
    return found


def _slowest(row: Row) -> PredictedTime:
    told = [one for one in map(told_of, row.records) if one is not None]
    return max(told, key=lambda one: one.ratio)


def _median(row: Row, name: str) -> float | None:
    known = [getattr(one, name) for one in map(told_of, row.records) if one is not None]
    return statistics.median(known) if known else None
