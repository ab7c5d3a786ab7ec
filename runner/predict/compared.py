"""What was measured against what had been predicted: errors, and how many cases lie within their interval."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cases.record.record import Record
from reports.table.sheet import Line, Sheet, markdown, text
from reports.table.text import counted
from runner.predict.evidence import gpu_of, is_evidence
from runner.predict.keeping import Kept, key_of
from runner.predict.score import TIE

ALL = "all"


@dataclass(frozen=True, slots=True)
class Pair:
    """A prediction and the time that was measured after or before it: the median over worlds of the medians, in
    microseconds. worlds: their number; is_other_code: whether any ran other code than was predicted; is_earlier:
    whether any was measured before the prediction was made."""

    kept: Kept
    time_us: float
    worlds: int
    is_other_code: bool
    is_earlier: bool

    @property
    def error(self) -> float:
        """Return predicted / measured - 1."""
        return self.kept.time_us / self.time_us - 1

    @property
    def is_within(self) -> bool:
        """Whether the measured time is in the predicted interval."""
        return self.kept.low_us <= self.time_us <= self.kept.high_us


@dataclass(frozen=True, slots=True)
class Comparison:
    """All pairs, in the order of the predictions. unmeasured: number of predictions without a measured case;
    unpredicted: of measured cases of the catalogue's kernels without a prediction."""

    pairs: tuple[Pair, ...]
    unmeasured: int
    unpredicted: int


def comparison(kept: Sequence[Kept], records: Sequence[Record]) -> Comparison:
    """Return predictions beside what records measured. ValueError if no record is of a predicted case."""
    worlds: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        if is_evidence(record):
            worlds.setdefault(key_of(gpu_of(record), record.case), []).append(record)
    pairs = [_pair(one, worlds[one.key]) for one in kept if one.key in worlds]
    if not pairs:
        raise ValueError(f"none of the {counted(len(worlds), 'measured case')} is among the predictions")
    known = {one.key for one in kept}
    return Comparison(tuple(pairs), len(kept) - len(pairs), sum(key not in known for key in worlds))


def shown(found: Comparison, form: str, width: int | None) -> str:
    """Return a comparison as "text", "markdown", "csv" or "json"; the last two have a line for each case."""
    if form == "json":
        return f"{json.dumps({'rows': [row(*one) for one in _groups(found)], 'cases': _lines(found)}, indent=1)}\n"
    if form == "csv":
        file = io.StringIO()
        lines = _lines(found)
        writer = csv.DictWriter(file, lines[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return file.getvalue()
    table = sheet(found)
    made = markdown([table], captions(found)) if form == "markdown" else text([table], captions(found), width)
    return f"{made}\n"


def row(title: str, pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return what is said of some pairs: their number, relative errors (median, 95th percentile, largest), the share
    within its interval, and how much slower the predicted choice is than the measured best (mean, and the share of
    choices that are at most 2 % slower); None where nothing is chosen."""
    errors = np.array([abs(one.error) for one in pairs])
    regrets = list(_regrets(pairs))
    return {
        "of": title,
        "cases": len(pairs),
        "median": float(np.median(errors)),
        "p95": float(np.quantile(errors, 0.95)),
        "largest": float(errors.max()),
        "within": sum(one.is_within for one in pairs) / len(pairs),
        "choices": len(regrets),
        "regret": statistics.mean(regrets) if regrets else None,
        "right": sum(one <= TIE for one in regrets) / len(regrets) if regrets else None,
    }


def sheet(found: Comparison) -> Sheet:
    """Return the table: a line for each op and number of ranks, the last for all."""
    columns = ("measured", "cases", "median", "p95", "largest", "within interval", "regret mean", "right choice")
    lines = []
    for title, pairs in _groups(found):
        values = row(title, pairs)
        cells = {"measured": title, "cases": str(values["cases"]), "within interval": _percent(values["within"], 0)}
        cells |= {name: _percent(values[name]) for name in ("median", "p95", "largest")}
        cells |= {"regret mean": _percent(values["regret"]), "right choice": _percent(values["right"], 0)}
        lines.append(Line(cells))
    heading = "Errors of predictions that were kept, against what was measured: |predicted / measured - 1|"
    return Sheet(heading, columns, (tuple(lines),), frozenset(columns[1:]))


def captions(found: Comparison) -> list[str]:
    """Return what stands below the table."""
    made = sorted({one.kept.made for one in found.pairs})
    said = [f"predicted on {made[0][:10]}" if made[0][:10] == made[-1][:10] else f"predicted {made[0]} to {made[-1]}"]
    earlier = sum(one.is_earlier for one in found.pairs)
    if earlier:
        said.append(
            f"measured before the prediction was made: {earlier} of {len(found.pairs)} cases, so that the model may be "
            "fitted to them"
        )
    if other := sum(one.is_other_code for one in found.pairs):
        said.append(f"ran other code than was predicted: {other} of {len(found.pairs)} cases")
    if found.unmeasured:
        said.append(f"predicted and not measured: {counted(found.unmeasured, 'case')}")
    if found.unpredicted:
        said.append(f"measured and not predicted: {counted(found.unpredicted, 'case')}")
    return said


def _pair(kept: Kept, worlds: Sequence[Record]) -> Pair:
    times = [one.timing.median_us for one in worlds if one.timing is not None]
    codes = {one.kernel.ptx_digest for one in worlds if one.kernel is not None}
    is_earlier = any(one.started[:19] < kept.made[:19] for one in worlds)
    return Pair(kept, statistics.median(times), len(times), codes != {kept.ptx}, is_earlier)


def _groups(found: Comparison) -> Iterator[tuple[str, list[Pair]]]:
    groups: dict[str, list[Pair]] = {}
    for one in found.pairs:
        case = one.kept.case
        groups.setdefault(f"{case.op} {case.dtype}, {case.world_size} ranks of {one.kept.gpu}", []).append(one)
    yield from groups.items()
    if len(groups) > 1:
        yield ALL, list(found.pairs)


def _regrets(pairs: Sequence[Pair]) -> Iterator[float]:
    """How much slower the algorithm with the shortest prediction is than the fastest, at each size with two or more."""
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for one in pairs:
        alike = key_of(one.kept.gpu, replace(one.kept.case, algorithm=""))
        groups.setdefault(alike, []).append(one)
    for members in groups.values():
        if len(members) > 1:
            chosen = min(members, key=lambda one: one.kept.time_us)
            yield chosen.time_us / min(one.time_us for one in members) - 1


def _lines(found: Comparison) -> list[dict[str, Any]]:
    lines = []
    for one in found.pairs:
        case, kept = one.kept.case, one.kept
        lines.append(
            {
                "gpu": kept.gpu,
                **{name: getattr(case, name) for name in ("op", "algorithm", "dtype", "world_size", "size_bytes")},
                "placement": case.placement,
                "predicted_us": kept.time_us,
                "low_us": kept.low_us,
                "high_us": kept.high_us,
                "measured_us": one.time_us,
                "worlds": one.worlds,
                "error": one.error,
                "within": one.is_within,
                "earlier": one.is_earlier,
                "other_code": one.is_other_code,
            }
        )
    return lines


def _percent(share: float | None, digits: int = 1) -> str:
    return "" if share is None else f"{100 * share:.{digits}f} %"
