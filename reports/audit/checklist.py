"""One set of records against itself: the twenty-one items of a credible audit, each with its outcome and its evidence.

What a record states is captured; where it is recomputed here, or compared with something outside the set, and agrees,
it is verified. What is not there is named. The exit code: 0 data was recomputed in at least one case of each kernel and
nothing was found, 1 a finding, 2 neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cases.record.record import Record
from reports.audit import completeness, measurements, origin, vouching, worker
from reports.audit.bindings import contradictions, with_contradictions
from reports.audit.comparison import FINDING, NOT_AUDITABLE, VERIFIED
from reports.audit.items import Item, Outcome, Point
from reports.audit.level import Level, level_of, numbers
from reports.audit.material import Material
from reports.table.sheet import Line, Sheet
from reports.table.text import counted
from reports.tracked import Tracker

CHECKS: tuple[Callable[[Material], Item], ...] = (
    origin.configuration,
    origin.repository,
    origin.kernels,
    origin.software,
    origin.machine,
    origin.variables,
    measurements.clocks,
    origin.seeds,
    measurements.data,
    measurements.method,
    measurements.samples,
    measurements.figures,
    measurements.replicates,
    measurements.baselines,
    measurements.bound,
    completeness.counts,
    origin.command,
    completeness.whole,
    completeness.replayable,
)
"""In the order of their numbers; the twentieth is derived from the others, see completeness.gaps, and the
twenty-first is who vouches for the set, see vouching.who_vouches."""

_COLUMNS = ("#", "item", "outcome", "ground", "evidence")
_STYLES = {Outcome.FINDING: "bold red", Outcome.VERIFIED: "green", Outcome.CAPTURED: "green"}
_STYLES |= {Outcome.DOES_NOT_APPLY: ""}


@dataclass(frozen=True)
class Audit:
    """The result: all items in the order of their numbers, the number of records, and the level of the set."""

    items: tuple[Item, ...]
    records: int
    level: Level

    @property
    def exit_code(self) -> int:
        if self.level.findings:
            return FINDING
        return VERIFIED if self.level.is_verified else NOT_AUDITABLE

    @property
    def verdict(self) -> str:
        """The result and the level in one line, the last of every form."""
        is_whole = self.level.recomputed == self.level.total and not self.level.not_run
        whole = "DATA VERIFIED" if is_whole else "DATA VERIFIED IN PART"
        head = {VERIFIED: whole, FINDING: "FINDING", NOT_AUDITABLE: "NOT AUDITABLE"}[self.exit_code]
        open_here = numbers(self.items, Outcome.NOT_COMPARABLE)
        says = f"; not comparable in item {', '.join(map(str, open_here))}" if open_here else ""
        return f"{head}: {self.level.text}{says}"

    @cached_property
    def summary(self) -> str:
        """The numbers of records and of items by outcome, and which items are open, in one line."""
        counts = Counter(item.outcome for item in self.items)
        says = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
        names = {Outcome.NOT_COMPARABLE: "not comparable", Outcome.NOT_CAPTURED: "not captured"}
        where = [
            f"; {name} in item {', '.join(map(str, found))}"
            for outcome, name in (names | {Outcome.FINDING: "findings"}).items()
            if (found := numbers(self.items, outcome))
        ]
        return f"{counted(self.records, 'record')}, {len(self.items)} items: {says}{''.join(where)}"

    @cached_property
    def sheets(self) -> tuple[Sheet, ...]:
        groups = []
        for item in self.items:
            lines = []
            for index, point in enumerate(item.points):
                first = (str(item.number), item.name) if not index else ("", "")
                cells = dict(
                    zip(_COLUMNS, (*first, str(point.outcome), point.ground_text, point.evidence), strict=True)
                )
                lines.append(Line(cells, {"outcome": _STYLES.get(point.outcome, "yellow")}))
            groups.append(tuple(lines))
        return (
            Sheet(
                "what a credible result captures, and what of it was verified", _COLUMNS, tuple(groups), frozenset("#")
            ),
        )

    @cached_property
    def captions(self) -> tuple[str, ...]:
        return (
            "VERIFIED: recomputed here, or compared with something outside the set; CAPTURED: stated by the records; "
            "NOT CAPTURED: the records do not hold it; NOT COMPARABLE: not verified, the evidence says why; an item "
            "counts as the gravest of its lines, and CAPTURED is graver than VERIFIED",
            self.summary,
        )

    def document(self) -> dict[str, Any]:
        """The whole result as plain JSON values."""
        items = [
            {
                "number": item.number,
                "name": item.name,
                "outcome": str(item.outcome),
                "points": list(map(_as_json, item.points)),
            }
            for item in self.items
        ]
        return {
            "kind": "checklist",
            "verdict": self.verdict,
            "level": self.level.document(),
            "summary": self.summary,
            "exit_code": self.exit_code,
            "signed": self.level.signed,
            "records": self.records,
            "items": items,
        }


def _as_json(point: Point) -> dict[str, Any]:
    """Return a point as JSON values; ground and share are null where nothing was verified."""
    has_ground = bool(point.ground_text)
    return {
        "outcome": str(point.outcome),
        "ground": str(point.ground) if has_ground else None,
        "share": list(point.share) if has_ground and point.share else None,
        "evidence": point.evidence,
    }


def check(
    records: Sequence[Record],
    places: Sequence[Path | str] = (),
    *,
    up_to_bytes: int = worker.INPUTS_UP_TO_BYTES,
    source: str = "",
    say: Callable[[str], None] = lambda text: None,
    ask: Callable[..., tuple[dict[str, Any] | None, str]] | None = None,
    code: Sequence[Path] = (),
    rerun: worker.Rerun | None = None,
    signers: Path | None = None,
    tracker: Tracker | None = None,
) -> Audit:
    """Check one set of records against the twenty-one items.

    places: the files and folders that it was read from. source: a name of where it is from instead, such as a server.
    up_to_bytes: maximum size of the cases whose inputs are made again. say: called with the progress as text. ask:
    replaces the worker, for tests. code, rerun: see worker.ask. signers: a list of signers, as ssh-keygen takes it.
    tracker: where MLflow's records are from, which may have signatures of them. Raises ValueError for a place that
    can't be read.
    """
    say("making configurations, cases and inputs again")
    ask = ask or partial(worker.ask, places=tuple(map(Path, places)), code=code, rerun=rerun)
    again, problem = ask(records, up_to_bytes, say)
    say("looking through the records")
    material = Material(tuple(records), tuple(map(Path, places)), again, problem, source)
    items = with_contradictions((one(material) for one in CHECKS), contradictions(material))
    vouched = vouching.who_vouches(material, signers, tracker)
    items = (*items, completeness.gaps(material, (*items, vouched.item)), vouched.item)
    not_run = sum(map(len, material.not_run.values()))
    is_changed = any((record.environment.git or {}).get("dirty") is True for record in records)
    return Audit(items, len(records), level_of(items, again, vouched.says, is_changed, bool(material.timed), not_run))
