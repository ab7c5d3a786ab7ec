"""Whether git has the commits that records name, and what it says of the sources that the records have digests of.

Only this project's own repository is read. Nothing of a commit and nothing that a record carries is run; a
record's source.diff is read, never applied.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from cases.record.reading import contents
from cases.record.record import Record
from runner.environment.repository import DIGESTED, MAX_NAMES, source_digests
from runner.request.validate import CONF
from symlab.evidence.audit.items import listed
from symlab.evidence.replay.commit_code import PATTERN, CommitCode, code_of

PATIENCE_S = 20

CLOCKS_APART_S = 3600.0
"""Maximum time by which a record may be older than its commit: the clocks of two machines."""

MOST_DIFFERENCE_BYTES = 1 << 22

_COMMIT = re.compile("[0-9a-f]{7,64}")
_FILE = re.compile(r"^diff --git a/(\S+) b/(\S+)$", re.MULTILINE)
_INDEX = re.compile(r"^diff --git a/(\S+) b/\S+\n(?:(?!diff --git).*\n)*?index ([0-9a-f]{7,64})\.\.", re.MULTILINE)


def commits(records: Sequence[Record], places: Sequence[Path] = (), root: Path = CONF.parent) -> dict[str, Any]:
    """What git says of the records' commits: {"known": number of environments whose commit git has, "compared": number
    whose sources were compared, "unknown": [[commit, reason], ..], "different": [[case id, what], ..]}.

    places: where source.diff is searched. root: the repository.
    """
    found: dict[str, Any] = {"known": 0, "compared": 0, "unknown": [], "different": []}
    seen: dict[str, Record] = {}
    for record in sorted(records, key=lambda one: datetime.fromisoformat(one.started)):
        git = record.environment.git
        if isinstance(git, dict) and git.get("commit"):
            seen.setdefault(repr((git, record.environment.sources)), record)
    for record in seen.values():
        git = record.environment.git or {}
        commit = str(git["commit"])
        tree = tree_of(root, commit)
        if isinstance(tree, str):
            found["unknown"].append([commit, tree])
            continue
        found["known"] += 1
        found["compared"] += bool(record.environment.sources)
        sentences = (*_time(record, tree), *_sources(record, git, tree), *_difference(git, tree, places))
        found["different"] += [[record.id, f"commit {commit[:12]}: {sentence}"] for sentence in sentences]
    found["different"] += _written(records, root)
    found["unknown"] = [list(one) for one in dict.fromkeys(map(tuple, found["unknown"]))]
    return found


def _written(records: Sequence[Record], root: Path) -> list[list[str]]:
    """[[case id, what], ..] of what the code of the records' commits would have written otherwise, each once."""
    found: dict[str, str] = {}
    for record in records:
        git = record.environment.git
        tree = tree_of(root, str(git["commit"])) if isinstance(git, dict) and git.get("commit") else ""
        if isinstance(git, dict) and not isinstance(tree, str):
            for sentence in (*_schema(record, git, tree), *_without(record, git, tree), *_kernel(record, git, tree)):
                found.setdefault(f"commit {str(git['commit'])[:12]}: {sentence}", record.id)
    return [[case, sentence] for sentence, case in found.items()]


@dataclass(frozen=True, slots=True)
class Tree:
    """A commit: when it was made, digests of its sources, the blob of each file by name, and what its code writes."""

    made: datetime
    sources: Mapping[str, str]
    blobs: Mapping[str, str]
    code: CommitCode


@cache
def tree_of(root: Path, commit: str) -> Tree | str:
    """Return a commit of a repository, or why it is unavailable."""
    if not _COMMIT.fullmatch(commit):
        return "it is no commit's name"
    try:
        made = _git(root, "show", "-s", "--format=%cI", f"{commit}^{{commit}}").decode().strip()
        lines = _git(root, "ls-tree", "-r", "-z", "--full-tree", commit).decode("utf-8", "surrogateescape").split("\0")
        blobs = {line.partition("\t")[2]: line.split()[2] for line in lines if line}
        there = [name for name in DIGESTED if any(path.startswith(f"{name}/") for path in blobs)]
        if not there:
            return "it is a commit of another project"
        with tempfile.TemporaryDirectory(prefix="symlab-") as folder:
            archive = _git(root, "archive", "--format=tar", commit, *there)
            subprocess.run(
                ["tar", "-x", "-C", folder], input=archive, check=True, capture_output=True, timeout=PATIENCE_S
            )
            code = code_of(_said(root, commit), Path(folder))
            return Tree(datetime.fromisoformat(made), source_digests(Path(folder)), blobs, code)
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        return (said.decode(errors="replace").strip().splitlines() or [type(error).__name__])[0].removeprefix("fatal: ")


def names_at(record: Record, root: Path = CONF.parent) -> tuple[str, ...]:
    """Return the names of the kernels that there were at a record's commit; () where git or the record can't say."""
    git = record.environment.git or {}
    tree = tree_of(root, str(git.get("commit") or ""))
    return () if isinstance(tree, str) or not _is_untouched(git, "kernels") else tree.code.names


def _git(root: Path, *arguments: str) -> bytes:
    return subprocess.run(
        ["git", "--no-optional-locks", *arguments], cwd=root, check=True, capture_output=True, timeout=PATIENCE_S
    ).stdout


def _said(root: Path, commit: str) -> str:
    """Return the lines of a commit's modules that say what its code writes; git ends with 1 if there are none."""
    line = ["git", "--no-optional-locks", "grep", "-h", "-E", PATTERN, commit, "--", "*.py", ":!tests"]
    done = subprocess.run(line, cwd=root, check=False, capture_output=True, timeout=PATIENCE_S)
    return done.stdout.decode("utf-8", "replace")


def _time(record: Record, tree: Tree) -> Iterator[str]:
    early_s = (tree.made - datetime.fromisoformat(record.started)).total_seconds()
    if early_s > CLOCKS_APART_S:
        yield f"it was made {early_s / 3600:,.1f} hours after the record began"


def _sources(record: Record, git: Mapping[str, Any], tree: Tree) -> Iterator[str]:
    """The digests of sources against the commit's, of each folder that nothing changed."""
    for name, digest in (record.environment.sources or {}).items():
        if name in tree.sources and _is_untouched(git, name) and digest != tree.sources[name]:
            yield f"its {name}/ is not what the record has a digest of"


def _is_untouched(git: Mapping[str, Any], folder: str) -> bool:
    """Whether a record says that a folder was as in its commit. False if it does not say, or names too few files."""
    if git.get("dirty") is None:
        return False
    counts = [git.get(f"{key}_files") for key in ("changed", "untracked")]
    if git["dirty"] and not all(type(count) is int and count <= MAX_NAMES for count in counts):
        return False
    touched = (str(name).partition("/")[0] for key in ("changed", "untracked") for name in git.get(key) or ())
    return folder not in touched


def _schema(record: Record, git: Mapping[str, Any], tree: Tree) -> Iterator[str]:
    """The schema against the one that the commit's code writes."""
    if tree.code.schema not in (None, record.schema) and all(_is_untouched(git, name) for name in ("cases", "reports")):
        yield f"its code writes records of schema {tree.code.schema}, this one has schema {record.schema}"


def _without(record: Record, git: Mapping[str, Any], tree: Tree) -> Iterator[str]:
    """Digests of sources that the commit's code writes, and the record lacks."""
    lacking = [name for name in tree.code.digested if name not in (record.environment.sources or {})]
    if lacking and _is_untouched(git, "runner"):
        yield f"its code writes digests of {listed(f'{name}/' for name in lacking)}, the record has none"


def _kernel(record: Record, git: Mapping[str, Any], tree: Tree) -> Iterator[str]:
    """The digest of a kernel's sources against that of the commit's files. Brought kernels are in no commit."""
    kernel = record.kernel
    if kernel is None or record.case.algorithm in (record.request.brought or {}) or not _is_untouched(git, "kernels"):
        return
    wanted = tree.code.kernels.get(kernel.name)
    if wanted is not None and kernel.source_digest != wanted:
        yield f"its sources of {kernel.name} are not what the record has a digest of"


def _difference(git: Mapping[str, Any], tree: Tree, places: Sequence[Path]) -> Iterator[str]:
    """The kept difference against the commit that it is said to be from, and the files that it is said to change."""
    kept = git.get("kept_diff")
    if not isinstance(kept, dict) or kept.get("left_out_bytes"):
        return
    text = _kept_text(str(kept.get("file")), str(kept.get("digest")), places)
    if text is None:
        return
    named = {new for _, new in _FILE.findall(text)}
    changed, count = git.get("changed"), git.get("changed_files")
    is_all = type(count) is int and count <= MAX_NAMES and len(re.findall("^diff --git", text, re.M)) == len(named)
    odd = sorted(named.symmetric_difference(map(str, changed))) if isinstance(changed, list) and is_all else []
    if odd:  # names with spaces are quoted, and left out
        yield f"{kept['file']} changes other files than the record names: {odd[0]}"
    for path, blob in _INDEX.findall(text):
        there = tree.blobs.get(path, "")
        if set(blob) != {"0"} and not there.startswith(blob):
            yield f"{kept['file']} changes a {path} that is not the commit's"


def _kept_text(name: str, digest: str, places: Sequence[Path]) -> str | None:
    """The text of a kept difference beside the records, of several the one with a digest, else any; None if it is not
    there. What a record names can only be a file of its own folder."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]+\.diff", name):
        return None
    found = None
    for place in places:
        folders = [place if place.is_dir() else place.parent]
        folders += sorted(path.parent for path in place.rglob("command.json")) if place.is_dir() else []
        for folder in dict.fromkeys(folders):
            with contextlib.suppress(ValueError):
                found = contents(folder / name, MOST_DIFFERENCE_BYTES)
                if f"sha256:{hashlib.sha256(found).hexdigest()}" == digest:
                    return found.decode("utf-8", "replace")
    return None if found is None else found.decode("utf-8", "replace")
