"""The pictures of one page: a limited number, each with unique ids.

No other file of reports/html draws; they order pictures here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from reports.html.blocks import Notes, Pictures
from reports.table.compare import LIMIT_LABEL, Row, contestants, is_second
from reports.table.text import counted

MOST = 150
"""Maximum number of axes on a page. Each takes a tenth of a second to draw."""

MOST_TRACKED = 40
"""The same of a report that MLflow shows: no more while a user waits. `symlab html` draws more."""

HOW_TO_READ = (
    "an algorithm has the same colour and marker in every picture; ours are solid lines with full markers, libraries "
    "dashed with hollow ones",
    "time against size has two logarithmic axes; bus bandwidth is beside it, with the measured limit of the link; "
    "lines are the median over worlds, bands reach from the lowest world to the highest",
)
_CURVES = "Time and bus bandwidth against size"
_TIME = "Time against size"


class Album:
    """Collects orders for pictures and swatches of legends (each distinct swatch once), and draws them all at the end.

    An order is a function that imports matplotlib only when it is called.
    """

    def __init__(self, most: int = MOST) -> None:
        self.most = self.left = most
        self.missing: list[str] = []
        self._orders: dict[str, Callable[[], str]] = {}
        self._swatches: dict[tuple[str, bool, bool], str] = {}

    @property
    def swatches(self) -> tuple[str, ...]:
        """The keys of all swatches."""
        return tuple(self._swatches.values())

    def drawn(self) -> dict[str, str]:
        """Draw all orders; return <svg> elements by key."""
        return {key: order() for key, order in self._orders.items()}

    def curves(self, heading: str, judged: Sequence[Row], limit: float | None, most: int = 2) -> list[Pictures]:
        """Order time and bus bandwidth of a section, with a legend; nothing for one size or on a full page. most: 1
        for time alone."""
        sizes = {row.size_bytes for row in judged if row.timings and row.size_bytes}
        if len(sizes) < 2 or not self._has_room(most, f"curves of {heading}"):
            return []
        timed = [row for row in judged if row.timings]
        entries = [
            (self._swatch(own[0].algorithm, own[0].is_ours, is_second(own, timed)), name)
            for name, own in contestants(timed).items()
        ]
        if limit is not None and most > 1:
            entries.append((self._swatch(LIMIT_LABEL, False), LIMIT_LABEL))

        def draw(measure: str) -> Any:
            from reports.figures import curves

            return curves.single(judged, measure, limit if measure == "busbw_gbps" else None)

        measures = (("median_us", "time"), ("busbw_gbps", "bus bandwidth"))[:most]
        svgs = tuple(self._order(partial(draw, one), f"{name} against size: {heading}") for one, name in measures)
        worlds = any(len(row.timings) > 1 for row in judged)
        bands = "; bands: from the lowest world to the highest." if worlds else "."
        return [Pictures(svgs, (_CURVES if most > 1 else _TIME) + bands, legend=tuple(entries))]

    def left_out(self) -> list[Notes]:
        """Return a note about the pictures that were not drawn, if any."""
        if not self.missing:
            return []
        text = (
            f"{counted(len(self.missing), 'picture')} left out, from '{self.missing[0]}' on: this page has {self.most} "
            "axes at most. Give fewer records, or draw them with symlab figure; the tables here are complete."
        )
        return [Notes((text,))]

    def _has_room(self, axes: int, what: str) -> bool:
        if self.missing or axes > self.left:
            self.missing.append(what)
            return False
        self.left -= axes
        return True

    def _order(self, make: Callable[[], Any], label: str) -> str:
        """Order a picture and return its key. make returns a matplotlib figure."""
        key = f"p{len(self._orders) + 1}"

        def order() -> str:
            from reports.figures import style

            return style.inline(make, key, label)

        self._orders[key] = order
        return key

    def _swatch(self, name: str, is_ours: bool, is_dotted: bool = False) -> str:
        """Order a swatch, unless it was ordered before, and return its key. LIMIT_LABEL is that of the link's limit."""
        if (name, is_ours, is_dotted) not in self._swatches:
            key = f"swatch{len(self._swatches) + 1}"

            def order() -> str:
                from reports.figures import style

                look = style.OF_LIMIT if name == LIMIT_LABEL else style.line_style(name, is_ours, is_dotted)
                return style.swatch(look, key)

            self._orders[key] = order
            self._swatches[name, is_ours, is_dotted] = key
        return self._swatches[name, is_ours, is_dotted]
