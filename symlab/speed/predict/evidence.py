"""What was measured: timed cases of our kernels in records, the worlds of a case pooled."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from cases.case import Case
from cases.gathered import gathered
from cases.record.record import Record
from reports.table.text import counted
from runner.gpu.reading import type_of_device
from symlab.speed.predict.case_work import CaseWork
from symlab.speed.predict.model import Rates, Terms, terms_of
from symlab.speed.predict.predictable import is_dependent

COMMAND = "symlab publish --derive"
"""What makes everything that follows from published bundles, profiles too."""

Member = TypeVar("Member")


@dataclass(frozen=True, slots=True)
class Measured:
    """A timed case. published: the set's folder, "" for other records. gpu: the type, as conf/gpu names it. time_us:
    the median over its worlds. terms: by the footprint of the measurement."""

    published: str
    gpu: str
    case: Case
    time_us: float
    terms: Terms

    @property
    def choice(self) -> tuple[object, ...]:
        """Return what the cases have in common of which one is chosen: all but the algorithm."""
        case = self.case
        return self.published, self.gpu, case.op, case.dtype, case.world_size, case.placement, case.size_bytes


def profile_key(record: Record) -> str:
    """Return the name of a record's profile: its case and the code that it ran. ValueError for one without a kernel."""
    if record.kernel is None:
        raise ValueError(f"{record.id} ran no kernel of ours, so that there is nothing to profile")
    return f"{record.id} {record.kernel.ptx_digest}"


def is_evidence(record: Record) -> bool:
    """Whether the model is fitted to a record, or scored by it: our own kernels, but for matmuls, timed by graphs of
    calls alone, on buffers in turn."""
    timing = record.timing
    return (
        timing is not None
        and record.kernel is not None
        and record.case.gemm is None
        and (timing.mode, timing.window, timing.l2) == ("graph", "kernel", "rotate")
        and gpu_of(record) != ""
    )


def gpu_of(record: Record) -> str:
    """Return the type of GPU that ran a record, as conf/gpu names it; "" for another one."""
    return _type_of(str(record.environment.gpus[0].get("model", ""))) if record.environment.gpus else ""


@cache
def _type_of(device: str) -> str:
    return type_of_device(device)


def grouped(members: Iterable[Member], key: Callable[[Member], Hashable]) -> list[list[Member]]:
    """Return members with equal keys together, in the order of the first ones."""
    found = gathered((key(one), one) for one in members)
    return list(found.values())


def measured(
    published: str, records: Iterable[Record], profiles: Mapping[str, CaseWork], rates: Mapping[str, Rates]
) -> tuple[Measured, ...]:
    """Return the timed cases of our own kernels among the records of a published set, in order of their names.

    profiles: by profile_key. rates: by type of GPU. ValueError for a case without a profile.
    """
    worlds = grouped(filter(is_evidence, records), lambda one: (profile_key(one), gpu_of(one)))
    if missing := sorted({profile_key(one[0]) for one in worlds} - set(profiles)):
        raise ValueError(
            f"{published}: {counted(len(missing), 'timed case')} without a profile, such as {missing[0]}; run {COMMAND}"
        )
    worlds.sort(key=lambda one: (profile_key(one[0]), gpu_of(one[0])))
    return tuple(pooled(one, profiles[profile_key(one[0])], rates[gpu_of(one[0])], published) for one in worlds)


def pooled(worlds: Sequence[Record], work: CaseWork, rates: Rates, published: str = "") -> Measured:
    """Return the worlds of a timed case as one, with what the model makes of its work."""
    times = [one.timing for one in worlds if one.timing is not None]
    case = worlds[0].case
    terms = terms_of(work, rates, float(times[0].footprint_bytes), is_dependent(case.algorithm))
    time_us = statistics.median(one.median_us for one in times)
    return Measured(published, gpu_of(worlds[0]), case, time_us, terms)
