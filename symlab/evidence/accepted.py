"""Published bundles and levels do not change unnoticed: those that differ from the repository's HEAD need a recorded
reason.

A commit makes whatever lies in reports/published/ the published records, with tables, figures and manifest to match. So
a bundle that differs from that of HEAD is refused, and so is a level.json, which the audit holds its machine to, until
`python -m reports published --accept REASON` has written its digests and the reason into ACCEPTED, beside the bundles.
Git is read, never written.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cases.record.reading import contents
from reports.record.bundle import LEVEL_NAME, SUFFIX
from reports.record.bundle import PUBLISHED as PLACE
from reports.record.writing import write_file

ACCEPTED = "accepted.md"
"""The list of bundles that were changed after they had been published: when, their digests, and why."""

_HEAD = """# Published bundles that were changed

Written by `python -m reports published --accept REASON`.

| date | bundle | was | is | reason |
| --- | --- | --- | --- | --- |
"""

_NONE = "-"
"""The digest of a bundle that is missing."""

_MOST_BYTES = 1 << 28

_PATIENCE_S = 20


def changed_bundles(root: Path) -> dict[str, tuple[str, str]]:
    """Return the bundles and levels that differ from those of the repository's HEAD, by their path from root: the
    digests there and here. The files of a machine that HEAD does not have are new, not changed.

    Empty where root is no repository of git, or has no commit.
    """
    places = {path.relative_to(root).as_posix(): path for path in (root / PLACE).glob("*/*")}
    here = {name: _digest(path) for name, path in places.items() if _is_held(name)}
    there = {name: _digest_at_head(root, name) for name in _names_at_head(root) if _is_held(name)}
    machines = {Path(name).parent for name in there}
    return {
        name: (there.get(name, _NONE), here.get(name, _NONE))
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
        and Path(name).parent in machines
        and (name in there or name.endswith(SUFFIX))  # a first level takes nothing back
    }


def accept(root: Path, reason: str) -> None:
    """Record in ACCEPTED, for each changed bundle, its digests and the reason. Raises ValueError for a reason that is
    empty or has no place in a table, and if no bundle is changed."""
    reason = reason.strip()
    if not reason or "\n" in reason or "|" in reason:
        raise ValueError(f"'{reason}' is no reason (--accept): give one line of words, without |")
    changed = changed_bundles(root)
    if not changed:
        raise ValueError("no bundle differs from HEAD's (--accept): there is nothing to accept")
    path = root / PLACE / ACCEPTED
    text = contents(path).decode("utf-8") if path.is_file() else _HEAD
    known = {cells[1:4] for cells in _lines(root)}
    today = datetime.now(UTC).date().isoformat()
    new = [(name, *digests) for name, digests in changed.items() if (name, *digests) not in known]
    write_file(path, (text + "".join(f"| {today} | {' | '.join(one)} | {reason} |\n" for one in new)).encode())


def unaccepted(root: Path) -> list[str]:
    """Return a sentence for each bundle that differs from HEAD's without a line in ACCEPTED that has both digests, and
    for each whose last line there has another digest than it has."""
    lines = list(_lines(root))
    said = {cells[1:4] for cells in lines}
    odd = {
        name: f"{name} differs from HEAD's"
        for name, digests in changed_bundles(root).items()
        if (name, *digests) not in said
    }
    for name, last in {cells[1]: cells[3] for cells in lines}.items():
        path = root / name
        if (_digest(path) if path.is_file() else _NONE) != last:
            odd.setdefault(name, f"{name} is not the one that {ACCEPTED} says was accepted last")
    return list(odd.values())


def _lines(root: Path) -> Iterator[tuple[str, ...]]:
    """The lines of ACCEPTED: date, bundle, both digests, reason."""
    path = root / PLACE / ACCEPTED
    for line in contents(path).decode("utf-8").splitlines() if path.is_file() else ():
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if line.startswith("| 2") and len(cells) == 5 and cells[1].startswith(f"{PLACE.as_posix()}/"):
            yield cells


def _is_held(name: str) -> bool:
    return name.endswith(SUFFIX) or Path(name).name == LEVEL_NAME


def _digest(path: Path) -> str:
    return f"sha256:{hashlib.sha256(contents(path, _MOST_BYTES)).hexdigest()}"


def _names_at_head(root: Path) -> list[str]:
    listed = _git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD", "--", f"{PLACE.as_posix()}/")
    return [] if listed is None else [name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name]


def _digest_at_head(root: Path, name: str) -> str:
    data = _git(root, "cat-file", "blob", f"HEAD:./{name}")
    return _NONE if data is None else f"sha256:{hashlib.sha256(data).hexdigest()}"


def _git(root: Path, *arguments: str) -> bytes | None:
    """What git prints in root; None if it fails, as it does outside a repository."""
    try:
        return subprocess.run(
            ["git", "--no-optional-locks", *arguments], cwd=root, check=True, capture_output=True, timeout=_PATIENCE_S
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
