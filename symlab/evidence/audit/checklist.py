"""One set of records against itself: the items of a credible audit, each with its outcome and its evidence.

What a record states is captured; where it is recomputed here, or compared with something outside the set, and agrees,
it is verified. What is not there is named. The exit code: 0 data was recomputed in at least one case of each kernel and
nothing was found, 1 a finding, 2 neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cases.record.record import Record
from reports.table.sheet import Line, Sheet
from symlab.evidence.audit import (
    clocks,
    code,
    completeness,
    configuration,
    correctness,
    machine,
    samples,
    signatures,
    timing,
    worker,
    worlds,
)
from symlab.evidence.audit.comparison import FINDING, NOT_AUDITABLE, VERIFIED
from symlab.evidence.audit.items import Item, Outcome, Point
from symlab.evidence.audit.level import Level, with_outcome
from symlab.evidence.audit.material import Answer, Material

ITEMS: Mapping[str, Callable[[Material], Iterable[Point]]] = {
    "configuration": configuration.configuration,
    "commit": code.commit,
    "kernels": code.kernels,
    "software": machine.software,
    "machine": machine.machine,
    "variables": machine.variables,
    "clocks": clocks.clocks,
    "data": correctness.data,
    "timing": timing.timing,
    "samples": samples.samples,
    "worlds": worlds.worlds,
    "baselines": worlds.baselines,
    "limit": timing.limit,
    "cases": completeness.cases,
    "command": configuration.command,
    "manifest": completeness.manifest,
    "replay": completeness.replay,
}
"""What gives the points of each item, by its name; beside them "signatures" is who vouches."""

RECOMPUTED = ("configuration", "commit", "kernels", "variables", "data", "cases", "replay")
"""The items that the worker recomputes a part of."""

_COLUMNS = ("item", "outcome", "ground", "evidence")
_STYLES = {
    Outcome.FINDING: "bold red", Outcome.VERIFIED: "green", Outcome.CAPTURED: "green", Outcome.DOES_NOT_APPLY: "",
}  # fmt: skip


@dataclass(frozen=True)
class Audit:
    """The result: all items, the number of records, and the level of the set."""

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
        is_whole = self.level.data.recomputed == self.level.data.total and not self.level.not_run
        whole = "DATA VERIFIED" if is_whole else "DATA VERIFIED IN PART"
        head = {VERIFIED: whole, FINDING: "FINDING", NOT_AUDITABLE: "NOT AUDITABLE"}[self.exit_code]
        open_here = with_outcome(self.items, Outcome.NOT_COMPARABLE)
        return f"{head}: {self.level.text}" + (f"; not comparable in {', '.join(open_here)}" if open_here else "")

    @cached_property
    def sheets(self) -> tuple[Sheet, ...]:
        groups = []
        for item in self.items:
            lines = []
            for point in item.points:
                cells = (item.name, str(point.outcome), point.ground_text, point.evidence)
                style = {"outcome": _STYLES.get(point.outcome, "yellow")}
                lines.append(Line(dict(zip(_COLUMNS, cells, strict=True)), style))
            groups.append(tuple(lines))
        heading = "what a credible result captures, and what of it was verified"
        return (Sheet(heading, _COLUMNS, tuple(groups), frozenset()),)

    @cached_property
    def captions(self) -> tuple[str, ...]:
        return (
            "VERIFIED: recomputed here, or compared with something outside the set; CAPTURED: stated by the records; "
            "NOT CAPTURED: the records do not hold it; NOT COMPARABLE: not verified, the evidence says why; an item "
            "counts as the gravest of its lines, and CAPTURED is graver than VERIFIED",
        )


def check(
    records: Sequence[Record],
    places: Sequence[Path | str] = (),
    *,
    wanted: worker.Wanted | None = None,
    say: Callable[[str], None] = lambda text: None,
    signers: Path | None = None,
    answer: Answer | None = None,
) -> Audit:
    """Check one set of records against the items.

    places: the files and folders that it was read from.
    wanted: what to recompute, None: the usual. say: called with the progress as text. signers: a list of signers, as
    ssh-keygen takes it. answer: what was recomputed already. Raises ValueError for a place that can't be read.
    """
    material = Material(tuple(records), tuple(map(Path, places)))
    answer = answer or recomputed(material.places, None if places else records, wanted or worker.Wanted(), say)
    say("looking through the records")
    items = [Item(name, _points(name, points, material, answer)) for name, points in ITEMS.items()]
    vouched = signatures.who_vouches(material, signers)
    items.append(vouched.item)
    level = Level(
        data=answer.level,
        findings=with_outcome(items, Outcome.FINDING),
        signed=vouched.says,
        is_changed=any((record.environment.git or {}).get("dirty") is True for record in records),
        has_times=bool(material.timed),
        not_run=sum(map(len, material.not_run.values())),
    )
    return Audit(tuple(items), len(records), level)


def recomputed(
    places: Sequence[Path], records: Sequence[Record] | None, wanted: worker.Wanted, say: Callable[[str], None]
) -> Answer:
    """Return what is recomputed of records, None: of those in places, see worker.ask."""
    say("making configurations and cases again")
    return worker.ask(places, records, wanted, say)


def _points(
    name: str, points: Callable[[Material], Iterable[Point]], material: Material, answer: Answer
) -> tuple[Point, ...]:
    """Return the points of an item, each once: what was recomputed, then what the records say."""
    again = answer.points.get(name, ())
    if answer.problem and name in RECOMPUTED:
        again = (Point(Outcome.NOT_COMPARABLE, f"not recomputed here: {answer.problem}"),)
    found = tuple(dict.fromkeys((*again, *points(material))))
    return found or (Point(Outcome.DOES_NOT_APPLY, "the records have nothing of it"),)
