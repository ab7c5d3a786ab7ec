"""Item "clocks": clocks, temperature, power, throttling and other processes, before and after each timing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from typing import Any

from cases.record.record import Record
from reports.table.text import counted
from symlab.evidence.audit.gpu_models import known_models
from symlab.evidence.audit.items import Outcome, Point, held, listed
from symlab.evidence.audit.machine import gpus_of
from symlab.evidence.audit.material import Material, values_at
from symlab.evidence.audit.statistics import world_of

HARMLESS = frozenset({"idle", "application clocks setting", "sync boost", "display clocks setting"})
"""Throttle reasons that do not invalidate a timing: the GPU was idle, or its clocks were set."""

SIMULATED = "nothing was timed: the set has no clock of real hardware"


def clocks(material: Material) -> Iterator[Point]:
    """What was read of each GPU, what held it back, and who else used it."""
    if not material.timed:
        yield untimed(material)
        return
    read = [state for record in material.timed for _, _, state in states_of(record)]
    gpus = [gpu for one in material.environments for some in values_at(one, "gpus") for gpu in some]
    shared = [one["other_processes"] for one in (*read, *gpus) if isinstance(one, dict) and "other_processes" in one]
    sentences = [text for record in material.timed for text in (*_beyond_the_type(record), *_held_back(record))]
    if others := [one for one in shared if one]:
        sentences.append(f"shared GPUs: {len(others)} readings of other processes, such as {others[0]}")
    good = f"{counted(len(read), 'reading')} of GPUs: none was held back, beyond its type or used by two worlds at once"
    yield from held((*sentences, *_at_once(material)), good if read else "")
    without = [one.id for one in material.timed if not any("throttle" in state for _, _, state in states_of(one))]
    if without:
        yield Point(
            Outcome.NOT_CAPTURED,
            f"whether anything held back GPUs of {counted(len(without), 'timing')}: {listed(without)}",
        )
    if not shared:
        yield Point(Outcome.NOT_CAPTURED, "whether other processes used the GPUs")


def untimed(material: Material) -> Point:
    """Return the point of a set without timings: NOT CAPTURED if it ran on GPUs, else the item does not apply."""
    if material.on_gpus:
        return Point(Outcome.NOT_CAPTURED, "nothing was timed, although it ran on GPUs")
    return Point(Outcome.DOES_NOT_APPLY, SIMULATED)


def states_of(record: Record) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield (rank, "before" or "after", the readings) for each state of a GPU that a timing holds."""
    for rank, device in enumerate(record.timing.devices if record.timing is not None else ()):
        for when, state in device.items():
            if isinstance(state, dict):
                yield rank, when, state


def _held_back(record: Record) -> Iterator[str]:
    for rank, when, state in states_of(record):
        said = state.get("throttle") or []
        if reasons := [one for one in map(str, said if isinstance(said, list) else [said]) if one not in HARMLESS]:
            yield f"{record.id}, rank {rank}, {when}: {', '.join(reasons)}"


def _beyond_the_type(record: Record) -> Iterator[str]:
    """Clocks above the highest of the GPUs' type."""
    for name, model in known_models(str(gpu.get("model")) for gpu in record.environment.gpus or ()).items():
        for key, most in (("sm_mhz", model.sm_mhz), ("memory_mhz", model.memory_mhz)):
            read = [state[key] for _, _, state in states_of(record) if type(state.get(key)) in (int, float)]
            if read and most is not None and max(read) > most:
                yield f"{key} was {max(read)}, the highest of {name} is {most}"


def _at_once(material: Material) -> Iterator[str]:
    """Two worlds, or two workers of one, that were timed on the same GPU at the same time disturbed each other, or one
    of them never ran."""
    spans: dict[str, dict[str, list[tuple[datetime, datetime]]]] = {}
    for record in material.timed:
        worker = (record.environment.launch or {}).get("worker")
        number = f", worker {worker.get('number')}" if isinstance(worker, dict) else ""
        times = datetime.fromisoformat(record.started), datetime.fromisoformat(record.ended)
        for uuid in gpus_of(record):
            spans.setdefault(uuid, {}).setdefault(f"{world_of(record)}{number}", []).append(times)
    for by_world in spans.values():
        whole = sorted((min(times)[0], max(end for _, end in times), name) for name, times in by_world.items())
        for one, other in pairwise(whole):
            if other[0] < one[1]:
                yield f"{one[2]} and {other[2]} were timed on the same GPU at the same time"
