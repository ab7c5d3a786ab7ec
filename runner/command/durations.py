"""How long cases took in earlier commands, from the records that they left.

Two cases take alike long if they agree in all that the work depends on (see kind_of). The nearest size is not taken for
another: neither the simulator's time nor a GPU's is proportional to bytes, because launches and barriers cost the same
for any size, and each kernel changes its grid at sizes of its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from cases.case import UNIFORM
from cases.gathered import gathered
from cases.record.request import as_today
from cases.record.shared import SHARED, Known
from cases.stress import NO_STRESS
from reports.record.bundle import NOT_RECORDS
from simulator.options import BEFORE

MAX_RECORDS = 20_000
"""Number of records that are read at most, from the newest command on: some seconds."""

_OF_NO_EFFECT = {
    "case": ("seed", "root", "offset"),
    "fabric": ("name", "seed", "heap_bytes", "step_budget", "share_gpus"),
}
"""Fields of a case and of the section fabric that its time does not depend on."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that cases took, by kind. records: the number of records that say so; left_out: of those not read."""

    records: int
    left_out: int
    seconds: Mapping[str, tuple[float, ...]]

    def of(self, kind: str) -> float | None:
        """Return the median of a kind's times in seconds; None if no record has one."""
        found = self.seconds.get(kind)
        return median(found) if found else None


def kind_of(case: Mapping[str, Any], configuration: Mapping[str, Any], is_simulated: bool) -> str:
    """Return what the time of a case depends on: a case's document and its job's configuration without what has no
    effect; of simulated ranks the fabric, of GPUs how they time."""
    case = {"counts": UNIFORM, "stress": NO_STRESS, **case}  # records of schema 4 have no stress
    asked = as_today(configuration)
    fabric = {name: value for name, value in asked["fabric"].items() if name not in _OF_NO_EFFECT["fabric"]}
    kind = {
        "case": {name: value for name, value in case.items() if name not in _OF_NO_EFFECT["case"]},
        "fabric": {**BEFORE, **fabric} if is_simulated else None,
        "timing": None if is_simulated else asked["timing"],
        "orders": None if case["stress"] == NO_STRESS else asked["stress_seeds"],
        **{name: asked[name] for name in ("launches", "check")},
    }
    return json.dumps(kind, sort_keys=True)


def durations_in(folder: Path) -> Durations:
    """Return what the records in a folder of commands' folders say; nothing if there is no such folder.

    Cases that were refused or failed say nothing. A file that is not a record is passed over.
    """
    commands = sorted((path for path in folder.glob("*") if path.is_dir()), reverse=True)
    paths = [path for one in commands for path in sorted(one.glob("*.json")) if path.name not in NOT_RECORDS]
    found: list[tuple[str, float]] = []
    taken = paths[:MAX_RECORDS]
    for _, some in itertools.groupby(taken, key=lambda path: path.parent):
        found += _of_a_command(some)
    seconds = gathered((kind, duration_s) for kind, duration_s in found)
    return Durations(len(found), len(paths) - len(taken), {kind: tuple(times) for kind, times in seconds.items()})


def _of_a_command(paths: Iterable[Path]) -> list[tuple[str, float]]:
    """Return kind and seconds of each record of one command that was right or wrong.

    What was timed on GPUs was timed together with all algorithms of its size, so each has an equal share of that time.
    """
    alone: list[tuple[str, float]] = []
    together: dict[tuple[int, int], list[tuple[str, datetime, datetime]]] = {}
    known = Known()
    for path in paths:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["status"] not in ("PASSED", "WRONG"):
                continue
            if (digest := document["request"].get(SHARED)) is not None:
                document["request"] = known.beside(path)(digest)
            kind = kind_of(document["case"], document["request"]["configuration"], document["fabric"]["simulated"])
            if document.get("timing") is None:
                alone.append((kind, float(document["duration_s"])))
                continue
            size = (int(document["request"]["job"]), int(document["case"]["size_bytes"]))
            began, ended = (datetime.fromisoformat(document[name]) for name in ("started", "ended"))
            together.setdefault(size, []).append((kind, began, ended))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
    for members in together.values():
        whole_s = (max(ended for *_, ended in members) - min(began for _, began, _ in members)).total_seconds()
        alone += [(kind, whole_s / len(members)) for kind, *_ in members]
    return alone
