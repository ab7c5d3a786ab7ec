"""Recorded predictions, made again for an audit: weighed by the project's floors and constants, and simulated.

Weighing takes no time, so every prediction whose floors and constants are the project's is weighed. Simulating takes
seconds a case: one case of each kernel, the smallest first, as long as there is time, and only where the record was
made with today's simulator and today's compiler gives the code that was timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cases.record.prediction import PredictedTime
from cases.record.record import Record
from kernels.catalogue import find, is_known
from runner.gpu.names import KEY, gpu_names
from runner.gpu.reading import gpu_type, type_of_device
from runner.request_error import first_line
from simulator.clock.costs import H200_TRIAL
from symlab.speed.predict.beside import digest_of_constants, digest_of_rates, predicted_beside, recorded_work
from symlab.speed.predict.budget import Budget
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.predicting import FORM, runnable_of, simulator_digest
from symlab.speed.predict.profiling import Runnable, profiled
from symlab.speed.predict.rates import Known, rates_of
from symlab.speed.predict.stored_score import Stored, stored

SIMULATED_S = 30.0
"""No prediction is simulated again that is not begun within this time."""

_ROUNDING = 1e-9
_FIGURES = ("time_us", "low_us", "high_us", "ratio")
_FAILED = (ValueError, RuntimeError, OSError, ArithmeticError, LookupError)
"""What compiling and simulating raise for a kernel that can't be."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A recorded prediction with what it is computed from, and its record."""

    record: Record
    told: PredictedTime
    footprint_bytes: float
    measured_us: float


def predictions(records: Sequence[Record], cache_dir: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """What comes of predicting again: {"weighed": number of predictions, "simulated": number of those whose work was
    simulated again, too, "different": [[case id, what], ..], "not_comparable": [[case id, why], ..]}."""
    found: dict[str, Any] = {"weighed": 0, "simulated": 0, "different": [], "not_comparable": []}
    given = [
        _Asked(one, one.prediction.time, float(one.timing.footprint_bytes), one.timing.median_us)
        for one in records
        if one.prediction is not None and one.prediction.time is not None and one.timing is not None
    ]
    weighable: list[_Asked] = []
    others: list[_Asked] = []
    score, types = stored(), {}
    for name in gpu_names() if given else ():
        known = rates_of(gpu_type(name))
        types[name, digest_of_rates(known.rates)] = known
    for one in given:
        if what := _of_another_type(one):
            found["different"].append([one.record.id, what])
            continue
        if why := _unknown(one, score, types):
            found["not_comparable"].append([one.record.id, why])
            continue
        if (one.told.gpu, one.told.floors_digest) not in types:
            owner = next(name for name, digest in types if digest == one.told.floors_digest)
            found["different"].append(
                [one.record.id, f"floors said to be those of {one.told.gpu} are those of {owner}"]
            )
            continue
        different = list(_weighed_otherwise(one, score, types[one.told.gpu, one.told.floors_digest]))
        found["different"] += [[one.record.id, what] for what in different]
        if one.told.work.get("form") == FORM or different:
            found["weighed"] += 1
            weighable.append(one)
        else:
            others.append(one)
    _simulate(weighable, found, cache_dir, say)
    _judge_forms(others, found, cache_dir, say)
    return found


def _of_another_type(one: _Asked) -> str:
    """How the type of a prediction differs from the one that it has to be of: the type that fabric.gpu of the
    configuration names, else that of the record's devices (of_request.py). "" where it is that one, and
    where it can't be told: without devices, on devices of no type known here, for a type that only a folder of
    --config-dir has."""
    fabric = (one.record.request.configuration or {}).get("fabric")
    named = fabric.get("gpu") if isinstance(fabric, dict) else None
    if named is not None:
        name = str(named.get("name")) if isinstance(named, dict) else str(named)
        return "" if name == one.told.gpu else f"predicted for {one.told.gpu}, {KEY} names {name}"
    devices = one.record.environment.devices
    types = {type_of_device(device) for device in devices}
    if not types or "" in types or types == {one.told.gpu} or one.told.gpu not in gpu_names():
        return ""
    return f"predicted for {one.told.gpu}, it ran on {', '.join(devices)} ({', '.join(sorted(types))})"


def _unknown(one: _Asked, score: Stored, types: Mapping[tuple[str, str], Known]) -> str:
    """Why a prediction can't be weighed again; "" if it can."""
    if one.told.constants_digest != digest_of_constants(score):
        return "predicted with other constants than those of the project today"
    if one.told.floors_digest not in {digest for _, digest in types}:
        return f"predicted with floors that conf/gpu does not have today (type {one.told.gpu})"
    return ""


def _weighed_otherwise(one: _Asked, score: Stored, known: Known) -> Iterator[str]:
    """Yield what comes out otherwise when the recorded work is weighed again."""
    try:
        work = CaseWork.of(one.told.work)
        ranks = one.record.case.world_size
        again = predicted_beside(work, one.footprint_bytes, one.measured_us, known, score, ranks).time
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        yield f"its work can't be weighed ({first_line(error)})"
        return
    if again is None:
        yield "the model gives no time for its work"
        return
    for name in _FIGURES:
        if not _same(getattr(one.told, name), getattr(again, name)):
            yield f"{name} is {getattr(one.told, name):g}, weighed again {getattr(again, name):g}"
    for name, value in asdict(again.terms).items():
        told_us = getattr(one.told.terms, name)
        if told_us is None or not _same(told_us, value):
            yield f"{name} is {'missing' if told_us is None else f'{told_us:g}'}, weighed again {value:g}"
    for kind in sorted({*one.told.path_us, *again.path_us}):
        here, there = again.path_us.get(kind, math.nan), one.told.path_us.get(kind, math.nan)
        if not _same(here, there):
            yield f"{kind} on the path is {there:g} us, weighed again {here:g}"
    if (one.told.regime, one.told.remarks) != (again.regime, again.remarks):
        here, there = (f"{some.regime} ({', '.join(some.remarks)})" for some in (again, one.told))
        yield f"{there}, weighed again {here}"


def _simulate(given: Sequence[_Asked], found: dict[str, Any], cache_dir: Path, say: Callable[[str], None]) -> None:
    """Simulate cases again, and compare their work: one of each kernel first."""
    ends_s = time.monotonic() + SIMULATED_S
    by_kernel: dict[str, list[_Asked]] = {}
    for one in sorted(given, key=lambda one: one.record.case.size_bytes):
        by_kernel.setdefault(one.record.case.name, []).append(one)
    known: set[tuple[str, str]] = set()
    for one in (some[turn] for turn in range(len(given)) for some in by_kernel.values() if turn < len(some)):
        key = (one.record.id, one.record.kernel.ptx_digest if one.record.kernel else "")
        if time.monotonic() > ends_s:
            return
        if key in known:
            continue
        known.add(key)
        say(f"predicting {one.record.id} again")
        if what := _simulated_otherwise(one, found, cache_dir, ends_s):
            found["different"].append([one.record.id, what])


def _judge_forms(given: Sequence[_Asked], found: dict[str, Any], cache_dir: Path, say: Callable[[str], None]) -> None:
    """Judge predictions whose work has another form of profiles than today's, and can't be simulated again. Today's
    simulator and today's code leave work of today's form, so there it is a difference."""
    ends_s = time.monotonic() + SIMULATED_S
    known: dict[tuple[str, str, str], str] = {}
    for one in given:
        record = one.record
        simulator = str((record.environment.sources or {}).get("simulator"))
        key = (record.id, record.kernel.ptx_digest if record.kernel else "", simulator)
        if key not in known and time.monotonic() > ends_s:
            known[key] = "there was no time to compile its kernel"
        if key not in known:
            say(f"compiling {record.id} again")
            runnable = _as_recorded(record, cache_dir)
            known[key] = runnable if isinstance(runnable, str) else ""
        said = f"its work has the form {one.told.work.get('form')!r} of profiles, today's is {FORM}"
        if why := known[key]:
            found["not_comparable"].append([record.id, f"{said}: {why}"])
        else:
            found["weighed"] += 1
            found["different"].append([record.id, f"{said}, and its simulator and its code are today's"])


def _simulated_otherwise(one: _Asked, found: dict[str, Any], cache_dir: Path, ends_s: float) -> str:
    """Simulate a case again, if its code, the simulator and the form of profiles are still the same. Returns what
    differs, "" for nothing and where one of them is another."""
    if one.told.work.get("form") != FORM:
        return ""
    runnable = _as_recorded(one.record, cache_dir)
    if isinstance(runnable, str):
        return ""
    try:
        work = profiled(runnable, H200_TRIAL, clock=Budget(max(ends_s - time.monotonic(), 1.0)))
    except _FAILED:  # it is the record's word then
        return ""
    found["simulated"] += 1
    return "" if recorded_work(work) == one.told.work else "simulated again, its path or its traffic is another one"


def _as_recorded(record: Record, cache_dir: Path) -> Runnable | str:
    """Return a record's case with its kernel compiled, if simulator and code are those of the record; else why not."""
    if record.kernel is None or not is_known(record.case.name):
        return f"the catalogue has no {record.case.name}"
    if (record.environment.sources or {}).get("simulator") != simulator_digest():
        return "it was made with another simulator"
    try:
        case = record.case
        runnable = runnable_of(case, find(case.name), record.kernel.arch, cache_dir)
    except _FAILED as error:
        return f"its kernel can't be compiled here ({first_line(error)})"
    return runnable if runnable.executable.digest == record.kernel.ptx_digest else "its kernel has other code today"


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_ROUNDING, abs_tol=1e-12)
