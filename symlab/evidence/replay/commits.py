"""Whether git has the commits that records name, and what it says of the sources that the records have digests of.

Only this project's own repository is read. Nothing of a commit and nothing that a record carries is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from cases.record.record import Record
from reports.table.text import counted
from runner.environment.repository import DIGESTED, FAILURES, MAX_NAMES, complaint, printed, source_digests
from runner.environment.worktree import files_at
from runner.request.experiments import CONF
from symlab.evidence.audit.items import Ground, Outcome, Point, listed, recomputed

CLOCKS_APART_S = 3600.0
"""Maximum time by which a record may be older than its commit: the clocks of two machines."""

_COMMIT = re.compile("[0-9a-f]{7,64}")


def commits(records: Sequence[Record], root: Path = CONF.parent) -> Iterator[Point]:
    """Yield what git says of the records' commits; root: the repository."""
    known, compared, different = 0, 0, []
    unknown: dict[tuple[str, str], None] = {}
    seen: dict[str, Record] = {}
    for record in sorted(records, key=lambda one: datetime.fromisoformat(one.started)):
        git = record.environment.git
        if isinstance(git, dict) and git.get("commit"):
            seen.setdefault(repr((git, record.environment.sources, record.schema)), record)
    for record in seen.values():
        git = record.environment.git or {}
        commit = str(git["commit"])
        tree = tree_of(root, commit)
        if isinstance(tree, str):
            unknown[commit, tree] = None
            continue
        known += 1
        compared += bool(record.environment.sources)
        sentences = (*_time(record, tree), *_sources(record, git, tree), *_schema(record, git, tree))
        different += [(record.id, f"commit {commit[:12]}: {sentence}") for sentence in sentences]
    if different or compared:
        what = "environments, their sources compared with those of their commits"
        yield from recomputed(compared if not different else 0, different, list(unknown), what, Ground.COMPARED)
        return
    if known:
        says = f"git has the commit of {counted(known, 'environment')}; the records have no digests of sources"
        yield Point(Outcome.CAPTURED, says)
    if unknown:
        texts = listed(f"{commit[:12]} ({why})" for commit, why in unknown)
        yield Point(Outcome.NOT_COMPARABLE, f"commit unknown here: {texts}")


@dataclass(frozen=True, slots=True)
class Tree:
    """A commit: when it was made, digests of its sources, its files, and the names of the kernels of its catalogue, ()
    if unknown; nvshmem_names: those that call NVSHMEM; schema: of the records that its code writes, None if unknown."""

    made: datetime
    sources: Mapping[str, str]
    files: frozenset[str]
    names: tuple[str, ...]
    nvshmem_names: tuple[str, ...]
    schema: int | None


@cache
def tree_of(root: Path, commit: str) -> Tree | str:
    """Return a commit of a repository, or why it is unavailable."""
    if not _COMMIT.fullmatch(commit):
        return "it is no commit's name"
    try:
        made = printed(root, "show", "-s", "--format=%cI", f"{commit}^{{commit}}").decode().strip()
        listed = printed(root, "ls-tree", "-r", "-z", "--full-tree", "--name-only", commit)
        files = frozenset(listed.decode("utf-8", "surrogateescape").split("\0"))
        digested = [name for name in DIGESTED if any(path.startswith(f"{name}/") for path in files)]
        if not digested:
            return "it is a commit of another project"
        with files_at(root, commit, *digested) as there:
            sources, names = source_digests(there), kernels_in(there)
            return Tree(datetime.fromisoformat(made), sources, files, *names, _schema_in(there))
    except (*FAILURES, ValueError, IndexError) as error:
        return complaint(error).removeprefix("fatal: ")


def names_at(record: Record, root: Path = CONF.parent) -> tuple[str, ...]:
    """Return the names of the kernels that there were at a record's commit; () where git or the record can't say."""
    git = record.environment.git or {}
    tree = tree_of(root, str(git.get("commit") or ""))
    return () if isinstance(tree, str) or not _is_untouched(git, "kernels") else tree.names


def _time(record: Record, tree: Tree) -> Iterator[str]:
    early_s = (tree.made - datetime.fromisoformat(record.started)).total_seconds()
    if early_s > CLOCKS_APART_S:
        yield f"it was made {early_s / 3600:,.1f} hours after the record began"


def _sources(record: Record, git: Mapping[str, Any], tree: Tree) -> Iterator[str]:
    """The digests of sources against the commit's, of each folder that nothing changed."""
    for name, digest in (record.environment.sources or {}).items():
        if name in tree.sources and _is_untouched(git, name) and digest != tree.sources[name]:
            yield f"its {name}/ is not what the record has a digest of"


def _schema(record: Record, git: Mapping[str, Any], tree: Tree) -> Iterator[str]:
    """The schema against the one that the commit's code writes."""
    if tree.schema not in (None, record.schema) and _is_untouched(git, "cases"):
        yield f"its code writes records of schema {tree.schema}, this one has schema {record.schema}"


def _schema_in(folder: Path) -> int | None:
    """Return the schema of the records that sources in a folder write; None where they say none, or several."""
    texts = (path.read_text(encoding="utf-8") for path in (folder / "cases").rglob("*.py"))
    found = {int(one) for text in texts for one in re.findall(r"^SCHEMA_VERSION = (\d+)$", text, re.MULTILINE)}
    return found.pop() if len(found) == 1 else None


def _is_untouched(git: Mapping[str, Any], folder: str) -> bool:
    """Whether a record says that a folder was as in its commit. False if it does not say, or names too few files."""
    if git.get("dirty") is None:
        return False
    counts = [git.get(f"{key}_files") for key in ("changed", "untracked")]
    if git["dirty"] and not all(type(count) is int and count <= MAX_NAMES for count in counts):
        return False
    touched = (str(name).partition("/")[0] for key in ("changed", "untracked") for name in git.get(key) or ())
    return folder not in touched


def has_kernel(folder: Path, name: str) -> bool:
    """Return whether the sources in a folder have a kernel of the catalogue, whose names once were its files."""
    return any(name in some for some in kernels_in(folder)) or (folder / "kernels" / f"{name}.py").is_file()


def kernels_in(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the kernels that the catalogue in a folder of sources lists, and of those on NVSHMEM; ()
    where it lists them neither as today's does, nor as one did whose names were the files. It is read, never run."""
    path = folder / "kernels" / "catalogue.py"
    found: dict[str, tuple[str, ...]] = {"FILES": (), "NVSHMEM_FILES": (), "MATMUL_FILES": ()}
    try:
        for one in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and one.value is not None:
                key = one.target.id.replace("NAMES", "FILES")
                if key in found:
                    found[key] = tuple(ast.literal_eval(one.value))
    except (OSError, ValueError, SyntaxError, TypeError):
        return (), ()
    return found["FILES"] + found["MATMUL_FILES"], found["NVSHMEM_FILES"]
