"""The audit of everything published: the manifest of the folder, tables and figures, and each machine's checklist."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from reports import publish
from reports.accepted import unaccepted
from reports.audit.checklist import Audit, check
from reports.audit.items import Outcome
from reports.record.seal import digest_of


def audit_published(root: Path, say: Callable[[str], None], signers: Path | None = None) -> int:
    """Print the audit of each machine; return the exit code: 0 all verified, 1 a finding, 2 nothing is published.

    signers: a list of signers, as ssh-keygen takes it. Raises ValueError without a manifest, or if a folder can't be
    read.
    """
    changed = [*publish.changes(root), *unaccepted(root)]
    for fault in changed:
        print(f"FINDING: {fault}")
    try:
        published = publish.machines(root)
    except ValueError as error:
        print(f"FINDING: {error}")
        return 1
    if not published:
        print("nothing is published")
        return 1 if changed else 2
    places = {name: root / publish.PLACE / name for name in published}

    def checked(name: str) -> tuple[str, Audit]:
        told = partial(_tell, say, name)
        return name, check(published[name], [places[name]], say=told, signers=signers)

    with ThreadPoolExecutor(2) as pool:  # the workers are processes: two cores do two machines in the time of one
        found = dict(pool.map(checked, published))
    for name, audit in found.items():
        print("\n".join([f"{name}: {audit.verdict}", *_told(audit)]))
    if not changed:
        digest = digest_of(root / publish.PLACE)
        print(f"{publish.PLACE.as_posix()}: every file is as its manifest has it ({digest})")
    try:
        publish.refresh(root, is_check=True)
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
        f"  {item.number:2} {item.name}: {point.outcome}: {point.evidence}"
        for outcome in (Outcome.FINDING, Outcome.NOT_COMPARABLE, Outcome.NOT_CAPTURED)
        for item in audit.items
        for point in item.points
        if point.outcome is outcome
    ]
