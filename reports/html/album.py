"""The pictures of one page: drawn once, with ids of their own, and no more than people look at.

Only this file of the page draws; everything else says what is to be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reports.accuracy import Group
from reports.compare import Row
from reports.html.parts import Legend, Notes, Pictures
from reports.study import Series

MOST = 150
"""So many axes a page has at most. They take a tenth of a second each."""

HOW_TO_READ = (
    "an algorithm has the same colour and marker in every picture; ours are solid lines with full markers, libraries "
    "dashed with hollow ones",
    "time against size has two logarithmic axes; bus bandwidth is beside it, with the measured limit of the link; "
    "lines are the median over worlds, bands reach from the lowest world to the highest",
    "samples: each against the median of its algorithm at its size, a stroke a sample (strokes that would cover one "
    "another are drawn once); the thick bar reaches from the 5th to the 95th percentile, the thin line from the "
    "smallest to the largest sample, the marker stands at the median; the axis is linear to 5 %, logarithmic beyond",
)
DASHES = (
    "pictures of errors: an algorithm has its colour and marker, an accumulator its dashes: float32 solid, native "
    "dotted, float16 dash-dotted, a library's own dashed; ulps are linear to 1, logarithmic beyond"
)
_CURVES = "Time and bus bandwidth against size"
_SPREAD = "Every sample against the median of its algorithm and size"
_ERRORS = "Errors against size"
_STUDY = "Errors against the number of ranks"


class Album:
    """Draws, counts, and keeps the swatches of legends, each once."""

    def __init__(self, most: int = MOST) -> None:
        self.left = most
        self.missing: list[str] = []
        self._drawn = 0
        self._swatches: dict[tuple[str, str], tuple[str, str]] = {}

    @property
    def swatches(self) -> tuple[tuple[str, str], ...]:
        """Id and <svg> of each swatch that legends use."""
        return tuple(self._swatches.values())

    def curves(self, heading: str, judged: Sequence[Row], limit: float | None) -> list[Legend | Pictures]:
        """Time and bus bandwidth of a section with its legend; nothing for less than two sizes or when full."""
        sizes = {row.size_bytes for row in judged if row.timings and row.size_bytes}
        if len(sizes) < 2 or not self._has_room(2, f"curves of {heading}"):
            return []
        from reports.figures import curves, style

        looks = {row.algorithm: style.line_style(row.algorithm, row.is_ours) for row in judged if row.timings}
        entries = [(self._swatch(name, "", look), name) for name, look in looks.items()]
        if limit is not None:
            entries.append((self._swatch(style.LIMIT_LABEL, "", style.OF_LIMIT), style.LIMIT_LABEL))
        svgs = (
            style.inline(lambda: curves.single(judged, "median_us"), self._key(), f"time against size: {heading}"),
            style.inline(
                lambda: curves.single(judged, "busbw_gbps", limit),
                self._key(),
                f"bus bandwidth against size: {heading}",
            ),
        )
        worlds = any(len(row.timings) > 1 for row in judged)
        bands = "; bands: from the lowest world to the highest." if worlds else "."
        return [Legend(tuple(entries)), Pictures(svgs, _CURVES + bands)]

    def spread(self, heading: str, judged: Sequence[Row]) -> list[Pictures]:
        """The distribution of a section's samples, to stand below its curves, whose legend it shares."""
        if not self._has_room(1, f"samples of {heading}"):
            return []
        from reports.figures import distribution, style

        svg = style.inline(
            lambda: distribution.single(judged), self._key(), f"samples against their median, by size: {heading}"
        )
        return [Pictures((svg,), f"{_SPREAD}.", wide=True)]

    def errors(self, group: Group) -> list[Legend | Pictures]:
        """Errors over sizes; nothing where all are 0, or where there is one size."""
        sizes = {size for curve in group.curves for size in curve.sizes}
        if len(sizes) < 2 or all(curve.is_exact for curve in group.curves):
            return []
        if not self._has_room(2, f"errors of {group.heading}"):
            return []
        from reports.figures import numerics, style

        entries = [
            (
                self._swatch(curve.algorithm, curve.accumulator, style.error_style(curve.algorithm, curve.accumulator)),
                numerics.label(curve),
            )
            for curve in group.curves
        ]
        svgs = [
            style.inline(
                lambda measure=measure: numerics.single(group, measure),  # type: ignore[misc]
                self._key(),
                f"{measure.title}, against size: {group.heading}",
            )
            for measure in numerics.measures_of(group)
        ]
        return [Legend(tuple(dict.fromkeys(entries))), Pictures(tuple(svgs), f"{_ERRORS}.")]

    def study(self, heading: str, series: Sequence[Series]) -> list[Legend | Pictures]:
        """Errors over world sizes of what belongs in one picture."""
        from reports.study import measures_of

        measures = measures_of(series)
        if not self._has_room(len(measures), f"errors over ranks of {heading}"):
            return []
        from reports.figures import study, style

        entries = [
            (
                self._swatch(one.algorithm, one.accumulator, style.error_style(one.algorithm, one.accumulator)),
                f"{one.algorithm}, {one.accumulator}",
            )
            for one in series
        ]
        svgs = [
            style.inline(
                lambda measure=measure: study.single(series, measure),  # type: ignore[misc]
                self._key(),
                f"{measure.title}, against ranks: {heading}",
            )
            for measure in measures
        ]
        return [Legend(tuple(dict.fromkeys(entries))), Pictures(tuple(svgs), f"{_STUDY}.")]

    def left_out(self) -> list[Notes]:
        """What was not drawn, if anything: never without a word."""
        if not self.missing:
            return []
        text = (
            f"{len(self.missing)} pictures were left out, from '{self.missing[0]}' on: a page has {MOST} axes at most. "
            "Give fewer records, or draw them with python -m reports figure; the tables here are complete."
        )
        return [Notes((text,))]

    def _has_room(self, axes: int, what: str) -> bool:
        if self.missing or axes > self.left:
            self.missing.append(what)
            return False
        self.left -= axes
        return True

    def _key(self) -> str:
        self._drawn += 1
        return f"p{self._drawn}"

    def _swatch(self, name: str, accumulator: str, look: dict[str, Any]) -> str:
        """The id of a swatch."""
        from reports.figures import style

        if (name, accumulator) not in self._swatches:
            key = f"swatch{len(self._swatches) + 1}"
            self._swatches[name, accumulator] = (key, style.swatch(look, key))
        return self._swatches[name, accumulator][0]
