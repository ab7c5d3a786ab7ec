"""What the worker found when it ran cases again, as points of the items: data (9), code (3), and running again (19)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from reports.audit.items import Ground, Outcome, Point, listed, verified_or
from reports.audit.material import Material
from reports.table.text import counted

_COMPARED = "digests, errors, elements, method, promise and bound agree"


def data_points(material: Material) -> Iterator[Point]:
    """Yield how the data of the set compares with that which was recomputed here."""
    found = _rerun(material)
    if found is None:
        yield Point(Outcome.NOT_COMPARABLE, f"data was not recomputed here: {material.problem or 'no answer'}")
        return
    agree, different, total = found["agree"], found["different"], found["of"]
    if agree or different:
        ways = Counter(how for _, _, how in agree)
        said = {"simulator": f"run again in the simulator (seed {found['seed']})", "reference": "by the reference"}
        said["status"] = "without a check, which ended here as recorded"
        parts = [f"{ways[how]:,} {text}" for how, text in said.items() if ways[how]]
        good = f"{len(agree):,} of {counted(total, 'case')} recomputed, {', '.join(parts)}: {_COMPARED}"
        share = len(agree) + len(different), total
        bad = [f"{case}: {what}" for case, what in different]
        yield verified_or(bad, good, share[0], "cases came out otherwise here", Ground.RECOMPUTED, share)
    if found["not_comparable"]:
        texts = [f"{case}: {what}" for case, what in found["not_comparable"]]
        yield Point(Outcome.NOT_COMPARABLE, f"{counted(len(texts), 'case')} came out differently: {listed(texts)}")
    if found["stated"]:
        yield Point(Outcome.CAPTURED, f"data of {counted(len(found['stated']), 'case')}: {_reasons(found['stated'])}")


def code_points(material: Material) -> Iterator[Point]:
    """Yield how recorded kernels compare with what their sources compile to here, of the cases that ran again."""
    found = _rerun(material)
    if found is not None:
        good = "code, entry, grid and block: as the sources, today's or the commit's, compile to here"
        yield from _points(found["code"], "code", good, "records have other code than their sources give")


def running_points(material: Material) -> Iterator[Point]:
    """Yield how many cases ran again here from the records alone, and how the simulator's counters compare."""
    found = _rerun(material)
    if found is None:
        return
    ran = sum(how == "simulator" for _, _, how in found["agree"])
    if ran:
        says = f"{counted(ran, 'case')} run again here from the records alone (seed {found['seed']})"
        yield Point(Outcome.VERIFIED, says, Ground.RECOMPUTED, (ran, found["of"]))
    if there := found.get("at_commit", 0):
        says = (
            f"{counted(there, 'case')} run again by the code of the commit that the records name, in a worktree of it"
        )
        yield Point(Outcome.VERIFIED, says, Ground.RECOMPUTED, (there, found["of"]))
    good = "instructions and bytes that the simulator counts"
    yield from _points(found["counters"], "counters", good, "records have other counters")


def _points(found: dict[str, Any], name: str, good: str, bad: str) -> Iterator[Point]:
    """Yield the points of a part of the worker's answer with "agree", "different" and "stated"."""
    agree, different, stated = found["agree"], found["different"], found["stated"]
    total = len(agree) + len(different) + len(stated)
    if agree or different:
        texts = [f"{case}: {what}" for case, what in different]
        share = len(agree) + len(different), total
        says = f"{good}: of {counted(len(agree), 'record')} the same"
        yield verified_or(texts, says, share[0], bad, Ground.RECOMPUTED, share)
    if stated:
        yield Point(Outcome.CAPTURED, f"{name} of {counted(len(stated), 'record')}: {_reasons(stated)}")


def _reasons(stated: Sequence[Sequence[str]]) -> str:
    """Return the reasons, each with the number of cases that have it, the most frequent first."""
    return listed((f"{count} {reason}" for reason, count in Counter(why for _, why in stated).most_common()), 6)


def _rerun(material: Material) -> dict[str, Any] | None:
    found = (material.again or {}).get("rerun")
    return found if isinstance(found, dict) else None
