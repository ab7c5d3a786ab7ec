"""What a search has measured so far, in a file beside its table, so that one that was cut short goes on.

The file is of one machine, one set of kernels and one way to measure (its key); anything else begins anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases.documents import decoded, encoded
from memory.atomic_file import replacing
from symlab.speed.tuned.table import Searched

VERSION = 5


@dataclass(frozen=True, slots=True)
class PointFound:
    """What the finished search of a point found: names by time, the best first; own, the catalogue's kernels that take
    the case and did not fail; and what a table says of the search."""

    best: tuple[str, ...]
    own: tuple[str, ...]
    searched: Searched


class State:
    """The points of a search by the id of their case. note says why an earlier file was of no use; "" if it was, or if
    there is none. finals: folders of the records of finals that were run, by what was run (state_key). earlier_s: what
    the commands took that measured what the file has, in seconds; spent_s: what this one took so far."""

    def __init__(self, path: Path, key: dict[str, Any], spent_s: Callable[[], float] = lambda: 0.0) -> None:
        self.path = path
        self.note = ""
        self.earlier_s = 0.0
        self.finals: dict[str, str] = {}
        self._spent_s = spent_s
        self._key = json.loads(json.dumps(key))
        self._points: dict[str, Any] = {}
        if path.exists():
            self._read()

    @property
    def is_begun(self) -> bool:
        """Whether there is something to go on with."""
        return bool(self._points)

    def rungs(self, point: str) -> dict[str, Any]:
        """Return what was measured of a point, by rung and name; changes of it are kept by save()."""
        rungs: dict[str, Any] = self._point(point)["rungs"]
        return rungs

    def found(self, point: str) -> PointFound | None:
        """Return what the finished search of a point found; None if it did not end."""
        found = self._point(point)["found"]
        return None if found is None else decoded(PointFound, found, point)

    def finish(self, point: str, found: PointFound) -> None:
        """Keep what the search of a point found."""
        self._point(point)["found"] = encoded(found)
        self.save()

    def save(self) -> None:
        """Write the file, whole or not at all. OSError if that can't be done."""
        seconds = self.earlier_s + self._spent_s()
        document = {"symlab_search": VERSION, "key": self._key, "seconds": seconds, "points": self._points}
        document["finals"] = self.finals
        with replacing(self.path) as beside:
            beside.write_text(json.dumps(document, allow_nan=False), encoding="utf-8")

    def remove(self) -> None:
        """Remove the file: the search is done."""
        self.path.unlink(missing_ok=True)

    def _point(self, point: str) -> dict[str, Any]:
        found: dict[str, Any] = self._points.setdefault(point, {"rungs": {}, "found": None})
        return found

    def _read(self) -> None:
        """Take what the file has, or say why not."""
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            if document["symlab_search"] != VERSION:
                raise ValueError("it is no search of this version")
            key, points = document["key"], document["points"]
            finals, earlier_s = dict(document["finals"]), float(document["seconds"])
            for point in points.values():
                if set(point) != {"rungs", "found"}:
                    raise ValueError("a point has other keys")
                if point["found"] is not None:
                    decoded(PointFound, point["found"], "found")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
            self.note = f"{self.path} can't be read ({' '.join(str(error).split())}): the search begins anew"
            return
        if key != self._key:
            self.note = f"{self.path} is of another machine, other kernels or other settings: the search begins anew"
            return
        self._points, self.finals, self.earlier_s = points, finals, earlier_s


def state_key(what: Any) -> str:
    """Return a digest of plain values."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
