"""What came of rows, in a file that outlives a run that is killed: the next run does what is missing.

A file of results is JSON by lines: first the machine, then a line a row, added as soon as its task ends; of a row's
lines the last counts. A run that is killed loses the tasks that were running.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import lzma
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path

import kernels
from kernels import catalogue
from kernels.compile import source_digest
from kernels.matrix.proofs import SIMULATOR
from memory.atomic_file import replacing
from runner.environment.repository import source_digests
from tests.matrix.cells import Row, case_of

HEAD = "results of the matrix"
"""The key of a file's first line, whose value is the machine."""

STATUSES = ("PASSED", "REFUSED", "WRONG", "FAILED")
GOOD = STATUSES[:2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a row: status PASSED, REFUSED (reason in detail), WRONG or FAILED; digest of all ranks' outputs."""

    row: Row
    id: str
    status: str
    detail: str = ""
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """An outcome as a file has it: by the case's id, with the digest of the sources that it is a result of."""

    id: str
    status: str
    detail: str = ""
    digest: str = ""
    sources: str = ""


@contextlib.contextmanager
def writing(path: Path, option: str = "--results") -> Iterator[None]:
    """Within, what the system has against writing is a ValueError that names the file and the option."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"{path} can't be written ({option}): {error.strerror}") from None


def check_place(path: Path, option: str) -> None:
    """Raise ValueError, before any row runs, if a file can't be written where it is asked for. Its folder is made."""
    if path.is_dir():
        raise ValueError(f"{path} can't be written: it is a folder")
    with writing(path, option):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


class Results:
    """A file of results, that one run at a time adds to."""

    def __init__(self, path: Path, machine: str) -> None:
        """Raises ValueError for a file that is something else, or has results of another machine."""
        self.path, self.machine = path, machine
        self._found: dict[str, Result] = {}
        self.is_begun = path.exists()
        if self.is_begun:
            there, self._found = read(path)
            if there != machine:
                raise ValueError(f"{path} has results of {there}, and this is {machine} (--results): give another file")

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Add outcomes to the file. Raises ValueError naming it if it can't be written."""
        made = [Result(*_said(one), sources_of(one.row.name, self.machine)) for one in outcomes]
        head = "" if self._found else json.dumps({HEAD: self.machine}) + "\n"
        self._found |= {one.id: one for one in made}
        with writing(self.path), open(self.path, "a" if not head else "w", encoding="utf-8") as file:
            file.write(head + "".join(map(_line, made)))

    def outcomes(self, rows: Sequence[Row]) -> list[Outcome]:
        """Return the kept outcomes of these rows, but for those that other sources had."""
        kept = []
        for row in rows:
            found = self._found.get(case_of(row).id)
            if found is not None and found.sources == sources_of(row.name, self.machine):
                kept.append(Outcome(row, found.id, found.status, found.detail, found.digest))
        return kept


def read(path: Path) -> tuple[str, dict[str, Result]]:
    """Return the machine and the results by id of a file. Raises ValueError naming the file if it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        head, *lines = text[: text.rfind("\n") + 1].splitlines() or [text]  # a full disk may have cut the last one
        machine = json.loads(head)[HEAD]
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        raise ValueError(f"{path} has no results of the matrix: give a file that --results wrote") from None
    return str(machine), {one.id: one for one in (_result(line, path) for line in lines)}


def digests_of(path: Path) -> dict[str, str]:
    """Return the digests of a file that --digests or --results wrote, by id; of rows without one, their status. A file
    of digests may be compressed (.xz).

    Raises ValueError naming the file if it is none.
    """
    try:
        content = path.read_bytes()
        text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
        if text.startswith(f'{{"{HEAD}"'):
            return {one.id: one.digest or one.status for one in read(path)[1].values()}
        found = json.loads(text)
    except (OSError, RecursionError, lzma.LZMAError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} can't be read (--compare): {error}") from None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError(f"{path} holds no digests (--compare): give a file that --digests or --results wrote")
    return found


def write_digests(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Write the digests of outcomes that have one, by id, a line each, so that two files can also be diffed. Raises
    ValueError naming the file if it can't be written."""
    found = {one.id: one.digest for one in outcomes if one.digest}
    with writing(path, "--digests"), replacing(path) as beside:
        beside.write_text(json.dumps(found, sort_keys=True, indent=0) + "\n", encoding="utf-8")


def differences(one: dict[str, str], other: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return what the other has else than the first: id, what the first has, what the other has.

    Cases that only the first has are no difference: it may have run more. "missing" stands for what it has not, which
    is as good as "REFUSED": --digests leaves out what was refused.
    """
    pairs = ((id, one.get(id, "missing"), digest) for id, digest in sorted(other.items()))
    return [(id, *two) for id, *two in pairs if two[0] != two[1] and two != ["missing", "REFUSED"]]


@cache
def sources_of(name: str, machine: str) -> str:
    """Return a digest of the sources that decide what comes of a kernel's rows: its own, the runner's, the memory's,
    and in the simulator those of the simulator."""
    digest = hashlib.sha256(source_digest(catalogue.find(name)).encode())
    found = source_digests(Path(kernels.__file__).resolve().parent.parent)
    for package in ("cases", "memory", "runner", *(["simulator"] if machine == SIMULATOR else [])):
        digest.update(found[package].encode())
    return digest.hexdigest()[:16]


def _said(outcome: Outcome) -> tuple[str, str, str, str]:
    return outcome.id, outcome.status, outcome.detail, outcome.digest


def _line(result: Result) -> str:
    return json.dumps({name: value for name, value in asdict(result).items() if value}) + "\n"


def _result(line: str, path: Path) -> Result:
    try:
        said = json.loads(line)
        known = {one.name for one in fields(Result)}
        result = Result(**{name: str(value) for name, value in said.items() if name in known})
    except (ValueError, TypeError, AttributeError, RecursionError):
        result = Result("", "")
    if result.status not in STATUSES:
        raise ValueError(f"{path} has a line that is no result (--results): {line[:60].strip()}")
    return result
