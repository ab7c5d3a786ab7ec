"""The audit of everything published: manifest, tables, figures, and each machine's checklist."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from reports.record.seal import digest_of
from symlab.evidence import published
from symlab.evidence.audit.checklist import Audit, check
from symlab.evidence.audit.items import Outcome
from symlab.evidence.audit.level import RERUNS
from symlab.evidence.audit.worker import Rerun, Wanted


def audit_published(root: Path, say: Callable[[str], None]) -> int:
    """Print the audit of each machine; return the exit code: 0 all verified, 1 a finding, 2 nothing is published.

    Raises ValueError without a manifest, or if a folder can't be read.
    """
    changed = published.changes(root)
    for fault in changed:
        print(f"FINDING: {fault}")
    try:
        sets = published.machines(root)
    except ValueError as error:
        print(f"FINDING: {error}")
        return 1
    if not sets:
        print("nothing is published")
        return 1 if changed else 2
    places = {name: root / published.PLACE / name for name in sets}
    wanted = Wanted(rerun=Rerun(RERUNS, secrets.randbelow(1_000_000), None))

    def audited(name: str) -> tuple[str, Audit]:
        told = partial(_tell, say, name)
        return name, check(sets[name], [places[name]], say=told, wanted=wanted)

    with ThreadPoolExecutor(2) as pool:  # the workers are processes: two cores do two machines in the time of one
        found = dict(pool.map(audited, sets))
    for name, audit in found.items():
        print("\n".join([f"{name}: {audit.verdict}", *_told(audit)]))
    if not changed:
        digest = digest_of(root / published.PLACE)
        print(f"{published.PLACE.as_posix()}: every file is as its manifest has it ({digest})")
    try:
        published.refresh(root, is_check=True)
    except ValueError as error:
        print(f"FINDING: {error}")
        return 1
    codes = {audit.exit_code for audit in found.values()}
    return 1 if changed or 1 in codes else max(codes)


def _tell(say: Callable[[str], None], name: str, text: str) -> None:
    say(f"{name}: {text}")


def _told(audit: Audit) -> list[str]:
    """Return a line for each point of a machine's checklist that is a finding, not comparable or not captured."""
    return [
        f"  {item.name}: {point.outcome}: {point.evidence}"
        for outcome in (Outcome.FINDING, Outcome.NOT_COMPARABLE, Outcome.NOT_CAPTURED)
        for item in audit.items
        for point in item.points
        if point.outcome is outcome
    ]
