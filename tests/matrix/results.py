"""What came of rows, in a file that outlives a run that is killed: the next run does what is missing.

A file of results is JSON by lines: first the machine, then a line a row, added as soon as its task ends; of a row's
lines the last counts. A run that is killed loses the tasks that were running.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import kernels
from kernels import catalogue
from kernels.compile import source_digest
from kernels.matrix.proofs import SIMULATOR
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


class Results:
    """A file of results, that one run at a time adds to."""

    def __init__(self, path, machine):
        """Raises ValueError for a file that is something else, or has results of another machine."""
        self.path, self.machine = path, machine
        self._found = {}
        if path.exists():
            there, self._found = read(path)
            if there != machine:
                raise ValueError(f"{path} has results of {there}, and this is {machine} (--results): give another file")

    def add(self, outcomes):
        """Add outcomes to the file."""
        made = [
            {"id": one.id, "status": one.status, "detail": one.detail, "digest": one.digest}
            | {"sources": sources_of(one.row.name, self.machine)}
            for one in outcomes
        ]
        head = [] if self._found else [{HEAD: self.machine}]
        self._found |= {one["id"]: one for one in made}
        with open(self.path, "w" if head else "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in (*head, *made)))

    def outcomes(self, rows):
        """Return the kept outcomes of these rows, but for those that other sources had."""
        kept = []
        for row in rows:
            found = self._found.get(case_of(row).id)
            if found is not None and found["sources"] == sources_of(row.name, self.machine):
                kept.append(Outcome(row, *(found[name] for name in ("id", "status", "detail", "digest"))))
        return kept


def read(path):
    """Return the machine and the results by id of a file. Raises ValueError naming the file if it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        head, *lines = map(json.loads, text[: text.rfind("\n") + 1].splitlines())  # a full disk may have cut the last
        return str(head[HEAD]), {one["id"]: one for one in lines}
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{path} has no results of the matrix: give a file that --results wrote") from None


def digests_of(path):
    """Return the digests of a file that --results wrote, by id; of rows without one, their status."""
    return {id: one["digest"] or one["status"] for id, one in read(path)[1].items()}


def differences(one, other):
    """Return what the other has else than the first: id, what the first has, what the other has.

    Cases that only the first has are no difference: it may have run more.
    """
    pairs = ((id, one.get(id, "missing"), digest) for id, digest in sorted(other.items()))
    return [(id, was, now) for id, was, now in pairs if was != now]


@cache
def sources_of(name, machine):
    """Return a digest of the sources that decide what comes of a kernel's rows: its own, the runner's, the memory's,
    and in the simulator those of the simulator."""
    digest = hashlib.sha256(source_digest(catalogue.find(name)).encode())
    found = source_digests(Path(kernels.__file__).resolve().parent.parent)
    for package in ("cases", "memory", "runner", *(["simulator"] if machine == SIMULATOR else [])):
        digest.update(found[package].encode())
    return digest.hexdigest()[:16]
