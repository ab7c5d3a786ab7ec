"""symlab predict --page: one HTML file with what is predicted, in the form of symlab's reports; nothing in it is
measured.

A part for each job: a figure with the intervals as bands, the table, ranges of sizes if asked; then the critical paths
of --explain, a row a block of a rank; then the remarks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.figures import critical_path, predicted
from reports.figures.curves import Curve
from reports.html.blocks import Block, Code, Facts, Fold, Notes, Part, Pictures, Table
from reports.html.document import page_of
from symlab.speed.predict import ranges
from symlab.speed.predict.explaining import Explanation
from symlab.speed.predict.predicting import Prediction
from symlab.speed.predict.shown import MISSING, Series, captions, heading_of, tables
from symlab.speed.predict.stored_score import Stored

VERDICT = "Predicted, not measured: every time and bandwidth on this page is a model's."
MOST_PICTURES = 60
"""Maximum number of critical paths that are drawn: a fifth of a second and some 50 KB each. Others are text alone."""

_SWATCH = "swatch-"
_BAND = (
    "Lines are predicted, bands are their intervals: of 90 % of the cases that the model is scored by, wider where "
    "constants are assumed."
)


def page(found: Sequence[Series], score: Stored, with_ranges: bool) -> str:
    """Return the page of jobs as text. with_ranges: with their ranges of sizes."""
    svgs: dict[str, str] = {}
    parts = [_job(number, one, with_ranges, svgs) for number, one in enumerate(found)]
    if paths := list(_paths(found, svgs)):
        parts.append(Part("paths", "Critical paths, by the model", tuple(paths)))
    said = [*captions(found), *([ranges.CAPTION] if with_ranges else [])]
    parts.append(Part("remarks", "Remarks", (Notes(tuple(said) or ("none",)),)))
    swatches = [key for key in svgs if key.startswith(_SWATCH)]
    return page_of("symlab prediction", _title(found), VERDICT, _facts(found, score), parts, svgs, swatches)


def curves(predictions: Sequence[Prediction], measure: str) -> list[Curve]:
    """Return the curves of predictions of one placement, "median_us" or "busbw_gbps": those whose times are worth
    telling, of sizes above 0."""
    told = [one for one in predictions if one.is_worth_telling and one.case.size_bytes]
    made = []
    for name in dict.fromkeys(one.case.algorithm for one in told):
        own = sorted((one for one in told if one.case.algorithm == name), key=lambda one: one.case.size_bytes)
        values = [_values(one, measure) for one in own]
        sizes = [one.case.size_bytes for one in own]
        made.append(predicted.predicted_curve(name, sizes, *zip(*values, strict=True)))
    return made


def _values(one: Prediction, measure: str) -> tuple[float, float, float]:
    """A prediction, and the lowest and highest value of its interval."""
    if measure == "median_us":
        return one.time_us, one.low_us, one.high_us
    moved = one.busbw_gbps * one.time_us
    return one.busbw_gbps, moved / one.high_us, moved / one.low_us


def _job(number: int, series: Series, with_ranges: bool, svgs: dict[str, str]) -> Part:
    """The part of a job: figures by placement, and tables."""
    blocks: list[Block] = []
    placements = dict.fromkeys(one.case.placement for one in series.predictions)
    for place, placement in enumerate(placements):
        here = [one for one in series.predictions if one.case.placement == placement]
        blocks += _pictures(f"job{number}-{place}", here, placement if len(placements) > 1 else "", svgs)
    blocks += [Table(one) for one in tables(series)]
    if with_ranges:
        blocks += [Table(one) for one in ranges.sheet(series)]
    case = next(iter([*(one.case for one in series.predictions), *(case for _, case, _ in series.without())]))
    arithmetic = "" if case.reduction == "none" else f", {case.accumulator}"
    title = f"Predicted: {case.op} {case.dtype}{arithmetic}, {case.world_size} ranks of {series.known.name}"
    return Part(f"job-{number + 1}", title, tuple(blocks))


def _pictures(key: str, here: Sequence[Prediction], placement: str, svgs: dict[str, str]) -> Iterator[Block]:
    """Time and bandwidth of one placement, with a legend; a note if no time is worth telling."""
    times = curves(here, "median_us")
    if not times:
        yield Notes(("no figure: without floors of its own the type has an order of algorithms, and no times here",))
        return
    legend: list[tuple[str, str]] = []
    for one in times:
        swatch = f"{_SWATCH}{key}-{len(legend)}"
        svgs[swatch] = predicted.swatch(one.algorithm, swatch)
        legend.append((swatch, one.algorithm))
    for measure in ("median_us", "busbw_gbps"):
        name = f"{key}-{measure}"
        svgs[name] = predicted.inline(curves(here, measure), measure, name)
    heading = heading_of(here[0].case, here[0].gpu, placement)
    yield Pictures((f"{key}-median_us", f"{key}-busbw_gbps"), f"{heading}. {_BAND}", legend=tuple(legend))


def _paths(found: Sequence[Series], svgs: dict[str, str]) -> Iterator[Block]:
    """What --explain tells: each case's path as a picture and as text."""
    every = [one for series in found for one in series.paths.values()]
    for number, one in enumerate(every):
        blocks: list[Block] = []
        if one.is_timed and one.path.total_us > 0 and number < MOST_PICTURES:
            key = f"path{number}"
            svgs[key] = critical_path.inline(one.profile.document(), key)
            blocks.append(Pictures((key,), f"Predicted: {_said(one)}", wide=True))
        blocks.append(Code("\n".join(one.lines()).strip("\n")))
        title = f"{one.title}, {one.case.world_size} ranks"
        yield Fold(title, tuple(blocks))


def _said(one: Explanation) -> str:
    return (
        f"the critical path of {one.title}, {one.case.world_size} ranks, by the floors of {one.gpu}: a row is a block "
        "of a rank, a bar a step, an arrow a wait for another rank."
    )


def _title(found: Sequence[Series]) -> str:
    cases = [one.case for series in found for one in series.predictions]
    ops = " and ".join(dict.fromkeys(one.op for one in cases))
    ranks = ", ".join(str(one) for one in sorted({one.world_size for one in cases}))
    names = " and ".join(dict.fromkeys(one.known.name for one in found))
    return f"PREDICTED: {ops} on {ranks} GPUs of type {names}"


def _facts(found: Sequence[Series], score: Stored) -> Facts:
    constants = score.constants
    rows = [
        ("type of GPU", ", ".join(dict.fromkeys(one.known.name for one in found))),
        ("constants", f"fitted to {score.cases} measured cases of {score.gpu}"),
        ("begin, cold", f"{constants.begin_us:.3f} us, {constants.cold_us:.3f} us"),
        ("cases predicted", str(sum(len(one.predictions) for one in found))),
        *((f"cases {kind}", str(sum(len(list(one.without(kind))) for one in found))) for kind in MISSING),
        ("measured values on this page", "none"),
    ]
    return Facts(tuple(rows))
