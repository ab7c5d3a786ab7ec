"""What symlab predict prints of its predictions: tables, or JSON. Both say that they are predicted.

An object of JSON stands for each case, those that were refused included, with all that the text says below its
table. Ranks are among the cases of one size and placement; equal times have the same rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cases.case import Case
from reports.table.sheet import Line, Sheet, room_here, text
from reports.table.text import counted
from reports.table.timed_table import time_text
from runner.request.sizes import format_bytes
from symlab.speed.predict.assumptions import SAID
from symlab.speed.predict.evidence import grouped
from symlab.speed.predict.predicting import Prediction, ranking
from symlab.speed.predict.rates import Known

MISSING = ("refused", "unfinished", "failed")
"""Why a case has no prediction: the kernel refuses it; there was no time, so that a second call or another host may
predict it; it could not be compiled or simulated, which is a defect of the kernel or of this program."""

_OF_THE_CASE = (
    "op", "algorithm", "dtype", "accumulator", "reduction", "placement", "root", "world_size", "size_bytes", "gemm",
)  # fmt: skip
_FIGURES = ("time_us", "low_us", "high_us", "busbw_gbps", "tflops")


@dataclass(frozen=True, slots=True)
class Series:
    """The predictions of one job, in the job's order of cases.

    missing: by kind of MISSING the cases that have none, with the reason.
    """

    known: Known
    predictions: tuple[Prediction, ...]
    missing: Mapping[str, Mapping[Case, str]] = field(default_factory=dict)

    def without(self, *kinds: str) -> Iterator[tuple[str, Case, str]]:
        """Yield the cases without a prediction: kind, case and reason. kinds: of MISSING, all if none are named."""
        for kind in kinds or MISSING:
            yield from ((kind, case, reason) for case, reason in self.missing.get(kind, {}).items())

    def reasons(self, *kinds: str) -> list[tuple[str, str]]:
        """Return kind and reason for each kernel and size without a prediction. kinds: as in without."""
        lines = (
            (kind, f"{case.name} {format_bytes(case.size_bytes)}: {said}") for kind, case, said in self.without(*kinds)
        )
        return list(dict.fromkeys(lines))

    def ranked(self) -> Iterator[tuple[int, Prediction]]:
        """Yield the predictions by size and placement, the shortest first, each with its rank from 1."""
        for group in grouped(self.predictions, lambda one: (one.case.size_bytes, one.case.placement)):
            for one in ranking(group):
                yield 1 + sum(other.time_us < one.time_us for other in group), one


def document(found: Sequence[Series], form: str) -> str:
    """Return predictions as text or as JSON."""
    if form == "text":
        return f"{text([one for series in found for one in tables(series)], captions(found), room_here())}\n"
    return f"{json.dumps([line for one in found for line in _lines(one)], indent=1)}\n"


def tables(series: Series) -> list[Sheet]:
    """Return a job's predictions as a table for each placement: a line for each size, a column for each algorithm, both
    in the job's order."""
    found = list(series.ranked())
    order = list(dict.fromkeys(one.case.algorithm for one in series.predictions))
    placements = dict.fromkeys(one.case.placement for one in series.predictions)
    sheets = []
    for placement in placements:
        ranked = [(rank, one) for rank, one in found if one.case.placement == placement]
        present = {one.case.algorithm for _, one in ranked}
        names = [name for name in order if name in present]
        sheets.append(_table(ranked, names, series.known, len(placements)))
    return sheets


def _table(ranked: Sequence[tuple[int, Prediction]], names: Sequence[str], known: Known, placements: int) -> Sheet:
    """The table of one placement. names: of its columns."""
    case = ranked[0][1].case
    lines = []
    for size_bytes in dict.fromkeys(one.case.size_bytes for _, one in ranked):
        cells = {"size": format_bytes(size_bytes)} | dict.fromkeys(names, "-")
        marks: dict[str, str] = {}
        for rank, one in ranked:
            if one.case.size_bytes == size_bytes:
                cells[one.case.algorithm] = _cell(one, rank)
                marks |= {one.case.algorithm: "bold"} if rank == 1 else {}
        lines.append(Line(cells, marks))
    placing = case.placement if placements > 1 else ""
    rate = "TFLOP/s" if case.gemm else "bus GB/s"
    heading = f"{heading_of(case, known.name, placing)}: us (from-to in 90 % of cases, {rate}), * the shortest"
    return Sheet(heading, ("size", *names), (tuple(lines),), frozenset({"size", *names}))


def heading_of(case: Case, gpu: str, placement: str) -> str:
    """Return what a table of predictions is of. placement: "" to leave it out."""
    arithmetic = "" if case.reduction == "none" else f", accumulator {case.accumulator}, {case.reduction}"
    placing = f", {placement}" if placement else ""
    root = f", root {case.root}" if case.root else ""
    sizes = "".join(f", {name} {size}" for name, size in zip("MNK", case.gemm or (), strict=False))
    return (
        f"PREDICTED, not measured: {case.op} {case.dtype}{arithmetic}{placing}{root}, "
        f"{counted(case.world_size, 'rank')} of {gpu}{sizes}"
    )


def _cell(one: Prediction, rank: int) -> str:
    star = "*" if rank == 1 else ""
    if not one.is_worth_telling:
        return f"no. {rank}{star}"
    interval = f"{time_text(one.low_us)}-{time_text(one.high_us)}"
    rate = one.tflops if one.case.gemm else one.busbw_gbps
    return f"{time_text(one.time_us)} ({interval}, {rate:.1f}){star}"


def captions(found: Sequence[Series]) -> list[str]:
    """Return what stands below the tables: remarks, what was assumed, what was refused, is unfinished or failed,
    each once."""
    remarks: dict[str, None] = {}
    for one in found:
        remarks |= {remark: None for prediction in one.predictions for remark in prediction.remarks}
        if one.known.assumed:
            remarks[f"floors of {one.known.name} that are assumed: {', '.join(one.known.assumed)}"] = None
            remarks[SAID] = None
        if not one.known.is_calibrated:
            remarks["no. N: the order alone; times where the links decide; symlab calibrate would give floors"] = None
        remarks |= {f"{kind}: {line}": None for kind, line in one.reasons()}
    return list(remarks)


def _lines(series: Series) -> Iterator[dict[str, object]]:
    """Yield a job's cases as plain values, unrounded; None for times that are not worth telling."""
    for rank, one in series.ranked():
        figures = {name: (getattr(one, name) or None) if one.is_worth_telling else None for name in _FIGURES}
        told = {"regime": one.regime, "rank": rank, "remark": "; ".join(one.remarks)}
        yield _line(series.known, one.case, figures | told)
    for kind, case, reason in series.without():
        nothing = dict.fromkeys((*_FIGURES, "regime", "rank"))
        yield _line(series.known, case, nothing | {"remark": ""}) | {kind: reason}


def _line(known: Known, case: Case, found: Mapping[str, object]) -> dict[str, object]:
    values = {name: getattr(case, name) for name in _OF_THE_CASE}
    rest = {"assumed": ", ".join(known.assumed), **dict.fromkeys(MISSING, "")}
    return {"predicted": True, "gpu": known.name, **values, **found, **rest}
