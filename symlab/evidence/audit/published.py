"""The audit of everything published: manifest, tables, figures, and each machine's checklist and level.

LEVEL_NAME beside a machine's bundles is the level that its set had when it was written: whether it is consistent, who
vouches for it, and of how many cases data was recomputed. A set that falls below it is a finding.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from cases.documents import parsed
from reports.record.bundle import LEVEL_NAME
from reports.record.seal import digest_of, seal
from reports.record.writing import write_file
from symlab.evidence import published
from symlab.evidence.accepted import unaccepted
from symlab.evidence.audit.checklist import Audit, check
from symlab.evidence.audit.items import Outcome
from symlab.evidence.audit.level import RERUNS
from symlab.evidence.audit.worker import Rerun, Wanted


def audit_published(root: Path, say: Callable[[str], None], signers: Path | None = None, is_level: bool = False) -> int:
    """Print the audit of each machine; return the exit code: 0 all verified, 1 a finding, 2 nothing is published.

    signers: a list of signers, as ssh-keygen takes it. is_level: write the level of each machine that has no finding,
    and the manifest, in place of comparing the level. Raises ValueError without a manifest, or if a folder can't be
    read.
    """
    changed = [*published.changes(root), *unaccepted(root)]
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
        return name, check(sets[name], [places[name]], say=told, signers=signers, wanted=wanted)

    with ThreadPoolExecutor(2) as pool:  # the workers are processes: two cores do two machines in the time of one
        found = dict(pool.map(audited, sets))
    fallen = False
    for name, audit in found.items():
        below = [] if is_level else _below(places[name], audit)
        fallen |= bool(below)
        print("\n".join([f"{name}: {audit.verdict}", *_told(audit), *below]))
    if is_level:
        _write_levels(root, places, found)
    if not changed:
        digest = digest_of(root / published.PLACE)
        print(f"{published.PLACE.as_posix()}: every file is as its manifest has it ({digest})")
    try:
        published.refresh(root, is_check=True)
    except ValueError as error:
        print(f"FINDING: {error}")
        return 1
    codes = {audit.exit_code for audit in found.values()}
    return 1 if changed or fallen or 1 in codes else max(codes)


def _below(place: Path, audit: Audit) -> list[str]:
    """Return a line for each part in which a machine's level is below the committed one, or why that can't be said."""
    path = place / LEVEL_NAME
    try:
        committed = parsed(path.read_text(encoding="utf-8"))
        found = audit.level.below(committed)
    except FileNotFoundError:
        found = [f"no {LEVEL_NAME} beside its bundles; python -m reports published --level writes it"]
    except (OSError, ValueError) as error:
        found = [f"{LEVEL_NAME} can't be read ({error})"]
    return [f"  FINDING: below the committed level: {text}" for text in found]


def _write_levels(root: Path, places: dict[str, Path], found: dict[str, Audit]) -> None:
    """Write the level of each machine without a finding, then the manifest, and print the names of changed files."""
    for name, audit in found.items():
        path = places[name] / LEVEL_NAME
        text = json.dumps(audit.level.document(), indent=2) + "\n"
        if audit.level.findings:
            print(f"{path.relative_to(root)}: not written, there are findings")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            write_file(path, text.encode("utf-8"))
            print(f"{path.relative_to(root)}: written")
    seal(root / published.PLACE)


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
