"""What of the code is not the same in two environments: commit, uncommitted changes, Python, sources, packages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cases.record.request import RecordedEnvironment


def code_changes(before: RecordedEnvironment, after: RecordedEnvironment) -> list[str]:
    """Return a line for each thing that changed, such as "package torch: 2.13.0, was 2.12.1".

    Sources and packages are compared where both environments have them.
    """
    was, is_now = (_git(one) for one in (before, after))
    found = []
    if was.get("commit") != is_now.get("commit"):
        found.append(f"commit: {_commit(is_now)}, was {_commit(was)}")
    if was.get("diff_digest") != is_now.get("diff_digest"):
        found.append("uncommitted changes: not the same")
    for what, one, other in (("Python", before.python, after.python), ("torch", before.torch, after.torch)):
        if one and other and one.get("version") != other.get("version"):
            found.append(f"{what}: {other.get('version')}, was {one.get('version')}")
    for what, one, other in (("sources", before.sources, after.sources), ("package", before.packages, after.packages)):
        if not one or not other:
            continue
        for name in sorted({*one, *other}):
            there, here = one.get(name), other.get(name)
            if there != here:
                found.append(f"{what} {name}: " + ("changed" if what == "sources" else f"{here}, was {there}"))
    return found


def _git(environment: RecordedEnvironment) -> Mapping[str, Any]:
    return environment.git if isinstance(environment.git, Mapping) else {}


def _commit(git: Mapping[str, Any]) -> str:
    return str(git.get("commit") or "unknown")[:12]
