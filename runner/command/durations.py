"""How long cases took in earlier commands, from the records that they left.

Two cases take alike long if they agree in all that the work depends on (see Kind). The nearest size is not taken for
another: neither the simulator's time nor a GPU's is proportional to bytes, because launches and barriers cost the same
for any size, and each kernel changes its grid at sizes of its own.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from cases.case import UNIFORM, Case
from cases.record.request import as_today
from cases.record.shared import SHARED, Known
from cases.stress import NO_STRESS
from reports.record.bundle import NOT_RECORDS
from runner.request.schema import TimingRequest
from runner.request.validate import ResolvedRequest
from simulator.options import BEFORE

MAX_RECORDS = 20_000
"""Number of records that are read at most, from the newest command on: some seconds."""

Kind = tuple[object, ...]
"""What the time of a case depends on: op, algorithm, dtype, accumulator, reduction, ranks, bytes, placement, inputs;
its counts per peer; number of launches, whether they are checked, and for races; its stress, and the number of orders
under it; the fabric
with its order and its multimem, or GPUs with how they time."""

_OF_THE_CASE = (
    "op",
    "algorithm",
    "dtype",
    "accumulator",
    "reduction",
    "world_size",
    "size_bytes",
    "placement",
    "inputs",
)
_OF_THE_TIMING = {one.name: one.default for one in fields(TimingRequest)}
"""Keys, with what older configurations mean that do not have them."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds that cases took, by kind. records: the number of records that say so; left_out: of those not read."""

    records: int
    left_out: int
    seconds: Mapping[Kind, tuple[float, ...]]

    def of(self, kind: Kind) -> float | None:
        """Return the median of a kind's times in seconds; None if no record has one."""
        found = self.seconds.get(kind)
        return median(found) if found else None


def kind_of(case: Case, request: ResolvedRequest) -> Kind:
    """Return the kind of a case that a request asks for."""
    fabric = request.fabric
    timing = {name: getattr(request.timing, name) for name in _OF_THE_TIMING}
    return _kind(
        {name: getattr(case, name) for name in (*_OF_THE_CASE, "counts", "stress")},
        {
            "launches": request.launches,
            "check": {"results": request.check, "races": fabric.races},
            "timing": timing,
            "stress_seeds": request.stress_seeds,
        },
        {
            "simulated": fabric.simulated,
            "arch": fabric.arch,
            "multimem": fabric.multimem,
            "memory": fabric.memory,
            **fabric.settings,
        },
    )


def durations_in(folder: Path) -> Durations:
    """Return what the records in a folder of commands' folders say; nothing if there is no such folder.

    Cases that were refused or failed say nothing. A file that is not a record is passed over.
    """
    commands = sorted((path for path in folder.glob("*") if path.is_dir()), reverse=True)
    paths = [path for one in commands for path in sorted(one.glob("*.json")) if path.name not in NOT_RECORDS]
    found: list[tuple[Kind, float]] = []
    taken = paths[:MAX_RECORDS]
    for _, some in itertools.groupby(taken, key=lambda path: path.parent):
        found += _of_a_command(some)
    seconds: dict[Kind, list[float]] = {}
    for kind, duration_s in found:
        seconds.setdefault(kind, []).append(duration_s)
    return Durations(len(found), len(paths) - len(taken), {kind: tuple(times) for kind, times in seconds.items()})


def _of_a_command(paths: Iterable[Path]) -> list[tuple[Kind, float]]:
    """Return kind and seconds of each record of one command that was right or wrong.

    What was timed on GPUs was timed together with all algorithms of its size, so each has an equal share of that time.
    """
    alone: list[tuple[Kind, float]] = []
    together: dict[tuple[int, int], list[tuple[Kind, datetime, datetime]]] = {}
    known = Known()
    for path in paths:
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["status"] not in ("PASSED", "WRONG"):
                continue
            if (digest := document["request"].get(SHARED)) is not None:
                document["request"] = known.beside(path)(digest)
            kind = _kind_of_record(document)
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


def _kind_of_record(document: Mapping[str, Any]) -> Kind:
    fabric, configuration = document["fabric"], as_today(document["request"]["configuration"])
    settings = {"simulated": fabric["simulated"], "arch": fabric["arch"], **fabric.get("settings", {})}
    check = {**configuration["check"], "races": document.get("findings") is not None}
    return _kind(document["case"], {**configuration, "check": check}, settings)


def _kind(case: Mapping[str, Any], configuration: Mapping[str, Any], fabric: Mapping[str, Any]) -> Kind:
    if fabric["simulated"]:
        known = {"memory": "strong", **BEFORE, **fabric}
        world: tuple[object, ...] = tuple(str(known.get(name)) for name in ("arch", "multimem", "schedule", "memory"))
        world += tuple(str(known[name]) for name in BEFORE)
    else:
        timing = configuration["timing"]
        world = ("nvshmem", *(str(timing.get(name, default)) for name, default in _OF_THE_TIMING.items()))
    values = [case[name] if isinstance(case[name], int) else str(case[name]) for name in _OF_THE_CASE]
    counts = str(case.get("counts", UNIFORM))  # only some ops have others
    stress = str(case.get("stress", NO_STRESS))  # records of schema 4 have none
    orders = (stress, 0 if stress == NO_STRESS else int(configuration["stress_seeds"]))
    check = configuration["check"]
    checked = (bool(check["results"]), bool(check["races"]))
    return (*values, counts, int(configuration["launches"]), *checked, *orders, *world)
