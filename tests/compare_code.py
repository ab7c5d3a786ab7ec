"""python -m tests.compare_code COMMIT: compile every kernel as it was at a commit and as it is here, and compare.

What is compared is the code digest (cases/code_digest.py): PTX without line information, so that moved files and
comments make no difference. The commit's tree is unpacked into a temporary folder, which is removed on every way out.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from cases.case import Case
from kernels.catalogue import SPECS, find
from kernels.matrix.variants import variants
from kernels.spec import KernelSpec

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = ROOT
"""Where git finds the commit."""

PACKAGES = ("kernels", "memory", "cases")
"""What compiling a kernel needs of a tree."""

SHOWN = 3
"""Maximum number of differing variants to name for a kernel."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a tree's kernels were compiled to: code digests by kernel and variant label, errors in the same way.

    sources has the digest of each kernel's sources, compiler the versions of the compiler's packages.
    """

    sources: Mapping[str, str]
    compiler: Mapping[str, str]
    codes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    errors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def differing(self, other: Compiled, name: str) -> list[str]:
        """Return the labels of a kernel's variants whose code differs, or that one side could not compile."""
        ours, theirs = self.codes.get(name, {}), other.codes.get(name, {})
        failed = {*self.errors.get(name, {}), *other.errors.get(name, {})}
        return sorted({label for label in {*ours, *theirs} if ours.get(label) != theirs.get(label)} | failed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 all equal, 1 some differ, 2 the request is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.compare_code",
        description="Compile every kernel as it was at a commit and as it is here, and compare their code.",
        epilog="exit codes: 0 all equal; 1 some differ; 2 the request is wrong",
    )
    parser.add_argument("commit", metavar="COMMIT", help="a commit, tag or branch of this repository")
    parser.add_argument("--kernel", action="append", help="only this one, such as all_reduce/one_shot; may be repeated")
    parser.add_argument("--all", action="store_true", help="every cell that a kernel takes, not a covering choice")
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keep compiled kernels there (a temporary folder)")
    options = parser.parse_args(arguments)
    try:
        specs = tuple(map(find, options.kernel)) if options.kernel else SPECS
        then, now = compared(specs, commit_of(options.commit), options.cache, every=options.all)
    except ValueError as error:
        print(f"compare_code: error: {error}", file=sys.stderr)
        return 2
    return 1 if show(specs, then, now) else 0


def commit_of(name: str) -> str:
    """Return the full hash of a commit. Raises ValueError if the repository does not have it."""
    done = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"{name} is not a commit of this repository: give a hash, a tag or a branch")
    return done.stdout.strip()


def compared(
    specs: Sequence[KernelSpec], commit: str, cache_dir: Path | None = None, *, every: bool = False
) -> tuple[Compiled, Compiled]:
    """Return what the kernels compile to at a commit, and here. Both trees are compiled at the same time.

    cache_dir keeps what was compiled, of both trees: an entry's name tells their sources apart. Raises ValueError if
    the commit can't be unpacked or its catalogue can't be imported.
    """
    asked = [
        {"kernel": spec.name, "label": one.label, "case": _fields(one.case), "arch": one.arch}
        for spec in specs
        for one in variants(spec, every)
    ]
    with tempfile.TemporaryDirectory(prefix="symlab-code-") as name:
        folder = Path(name)
        older = unpacked(commit, folder / "tree")
        cache = cache_dir.expanduser().absolute() if cache_dir else folder / "cache"
        with (
            ThreadPoolExecutor(2) as threads,
            _started(older, folder, cache) as then,
            _started(ROOT, folder, cache) as now,
        ):
            text = json.dumps(asked)
            answers = [threads.submit(process.communicate, text) for process in (then, now)]
            found = [answer.result()[0] for answer in answers]
            if then.returncode or now.returncode:
                which = f"commit {commit[:12]}" if then.returncode else "this tree"
                raise ValueError(f"the kernels of {which} can't be compiled: its catalogue can't be imported")
    return _compiled(found[0]), _compiled(found[1])


def unpacked(commit: str, folder: Path) -> Path:
    """Unpack the commit's packages into a folder, and return it. Raises ValueError if the commit lacks them."""
    since = subprocess.run(  # trees of before had the nouns in kernels/
        ["git", "ls-tree", "--name-only", commit, "cases"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    names = [one for one in PACKAGES if one != "cases" or since.stdout.strip()]
    done = subprocess.run(
        ["git", "archive", "--format=tar", commit, *names], cwd=REPOSITORY, capture_output=True, check=False
    )
    if done.returncode:
        raise ValueError(f"commit {commit[:12]} can't be unpacked: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextmanager
def _started(tree: Path, folder: Path, cache: Path) -> Iterator[subprocess.Popen[str]]:
    """Start tests/code_of_tree.py with a tree first on its path and its temporary files in folder, and kill it at the
    end."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            str(ROOT / "tests" / "code_of_tree.py"),
            str(tree),
            str(ROOT / "cases/code_digest.py"),
            cache,
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree), "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _fields(case: Case) -> dict[str, Any]:
    """A case's fields but for those at their default: an older tree may not have them."""
    return {
        one.name: getattr(case, one.name)
        for one in dataclasses.fields(case)
        if one.default is dataclasses.MISSING or getattr(case, one.name) != one.default
    }


def _compiled(answer: str) -> Compiled:
    first, *others = map(json.loads, answer.splitlines())
    codes: dict[str, dict[str, str]] = {}
    errors: dict[str, dict[str, str]] = {}
    for one in others:
        into, key = (codes, "code") if "code" in one else (errors, "error")
        into.setdefault(one["kernel"], {})[one["label"]] = one[key]
    return Compiled(first["sources"], first["compiler"], codes, errors)


def show(specs: Sequence[KernelSpec], then: Compiled, now: Compiled) -> list[str]:
    """Print a table with a row for each kernel, and return the names of the kernels that differ."""
    console = Console(width=140)
    table = Table("kernel", "variants", "sources", "code", box=None)
    differing = []
    for spec in specs:
        name = spec.name
        labels = then.differing(now, name)
        count = len({*now.codes.get(name, {}), *now.errors.get(name, {})})
        same_sources = then.sources.get(name) == now.sources.get(name)
        table.add_row(
            name, str(count), "equal" if same_sources else "changed", _differences(labels, then, now, name) or "equal"
        )
        differing += [name] if labels else []
    console.print(table)
    if then.compiler != now.compiler:
        console.print(f"the compilers differ: {dict(then.compiler)} and {dict(now.compiler)}", soft_wrap=True)
    console.print(f"{len(specs) - len(differing)} of {len(specs)} kernels have equal code")
    return differing


def _differences(labels: Sequence[str], then: Compiled, now: Compiled, name: str) -> str:
    """Which variants differ, in words; "" when none does."""
    texts = []
    for label in labels[:SHOWN]:
        reasons = [
            f"{when}: {side.errors[name][label]}"
            for when, side in (("then", then), ("here", now))
            if label in side.errors.get(name, {})
        ]
        texts.append(f"{label} ({'; '.join(reasons)})" if reasons else label)
    more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
    return f"{len(labels)} differ: {', '.join(texts)}{more}" if labels else ""


def _ended(signal_number: int, _: object) -> None:
    """Leave by an exception, so that the temporary folder is removed and both processes end."""
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _ended)
    sys.exit(main())
