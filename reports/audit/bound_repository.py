"""What records say of their commit: whether anything differed from it, and the difference that is kept beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cases.record.record import WHOLE_SINCE, Record
from reports.audit.contradiction import Contradiction
from reports.audit.items import Ground, Outcome, Point, listed
from reports.audit.material import Material
from reports.table.text import counted

REPOSITORY = 2

_DIFFERENCE = re.compile(r"source(\.[0-9]+)?\.diff")


def contradictions(world: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield what the records of one world say of their commit and not alike, each sentence once."""
    found: dict[str, None] = {}
    for record in world:
        git = record.environment.git
        if isinstance(git, dict):
            found |= dict.fromkeys((*_of(git), *_unsaid(record, git)))
    name = world[0].request.command or world[0].id
    yield from (Contradiction(REPOSITORY, f"{name}: {sentence}") for sentence in found)


def _of(git: Mapping[str, Any]) -> Iterator[str]:
    commit = git.get("commit")
    if commit and not re.fullmatch("[0-9a-f]{7,64}", str(commit)):
        yield "its commit is no commit's name"
    dirt = [key for key in ("changed_files", "untracked_files", "diff_digest", "kept_diff") if git.get(key)]
    if git.get("dirty") is False and dirt:
        yield f"unchanged, and {', '.join(dirt)} say otherwise"
    if git.get("dirty") is True and not dirt and {"changed_files", "untracked_files"} <= git.keys():
        yield "changed, and nothing of it is"
    for key in ("changed", "untracked"):
        names, count = git.get(key), git.get(f"{key}_files")
        if isinstance(names, list) and type(count) is int and len(names) != count and len(names) < min(count, 50):
            yield f"{count} {key} files, of which {len(names)} are named"
        if isinstance(names, list) and type(count) is int and len(names) > count:
            yield f"{count} {key} files, and {len(names)} are named"
    if git.get("diff_digest") and not git.get("changed_files") and "changed_files" in git:
        yield "no file is changed, and the changes have a digest"


def _unsaid(record: Record, git: Mapping[str, Any]) -> Iterator[str]:
    """Records of schema 6 and later always say whether the tree was as in its commit."""
    if record.schema >= WHOLE_SINCE and git.get("commit") and type(git.get("dirty")) is not bool:
        yield "it has a commit, and does not say whether its tree was changed, which every record does"


def of_folder(folder: Path, name: str, members: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield kept differences that no record beside them names."""
    kept = [(one.environment.git or {}).get("kept_diff") for one in members]
    named = {str(one.get("file")) for one in kept if isinstance(one, dict)}
    for path in sorted(folder.glob("source*.diff")):
        if members and _DIFFERENCE.fullmatch(path.name) and path.name not in named:
            yield Contradiction(REPOSITORY, f"{name}: {path.name} is beside records that name no such changes")


def known(material: Material) -> list[Point]:
    """Return what git says of the commits, as the worker asked it; nothing where it did not."""
    found = (material.again or {}).get("commits")
    if found is None:
        return []
    points = []
    different = [f"{case}: {what}" for case, what in found["different"]]
    total = found["known"] + len(found["unknown"])
    share = found["compared"], total
    if different:
        says = f"{counted(len(different), 'difference')} from what git has: {listed(different)}"
        points.append(Point(Outcome.FINDING, says, Ground.COMPARED, share))
    elif found["compared"]:
        good = f"git has the commit of {counted(found['known'], 'environment')}; sources are the commit's"
        points.append(Point(Outcome.VERIFIED, good, Ground.COMPARED, share))
    elif found["known"]:
        says = f"git has the commit of {counted(found['known'], 'environment')}; the records have no digests of sources"
        points.append(Point(Outcome.CAPTURED, says))
    if found["unknown"]:
        texts = [f"{commit[:12]} ({why})" for commit, why in found["unknown"]]
        points.append(Point(Outcome.NOT_COMPARABLE, f"commit unknown here: {listed(texts)}"))
    return points
