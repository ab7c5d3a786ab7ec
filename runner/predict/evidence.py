"""What was measured: published cases of our kernels with their times, their profiles and what stood beside them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from reports.record.record import Record
from reports.table.text import counted
from runner.gpu.reading import type_of_device
from runner.predict.case_work import CaseWork
from runner.predict.model import Rates, Terms, terms_of

COMMAND = "symlab publish --derive"
"""What makes everything that follows from published bundles, profiles too."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A case of a published set. published: the set's folder. gpu: the type, as conf/gpu names it. time_us: the median
    over its worlds. terms: by the footprint of the measurement."""

    published: str
    gpu: str
    op: str
    algorithm: str
    dtype: str
    world_size: int
    size_bytes: int
    time_us: float
    terms: Terms

    @property
    def choice(self) -> tuple[object, ...]:
        """Return what the cases have in common of which one is chosen: all but the algorithm."""
        return self.published, self.op, self.dtype, self.world_size, self.size_bytes


def profile_key(record: Record) -> str:
    """Return the name of a record's profile: its case and the code that it ran. ValueError for one without a kernel."""
    if record.kernel is None:
        raise ValueError(f"{record.id} ran no kernel of ours, so that there is nothing to profile")
    return f"{record.id} {record.kernel.ptx_digest}"


def is_evidence(record: Record) -> bool:
    """Whether the model is fitted to a record, or scored by it: our own kernels, timed by graphs of calls alone, on
    buffers in turn, without calls before a sample."""
    timing, configuration = record.timing, record.request.configuration or {}
    asked = configuration.get("timing")
    return (
        timing is not None
        and record.kernel is not None
        and (timing.mode, timing.window, timing.l2) == ("graph", "kernel", "rotate")
        and not (isinstance(asked, dict) and asked.get("lead_in_calls"))
        and gpu_of(record) != ""
    )


def gpu_of(record: Record) -> str:
    """Return the type of GPU that ran a record, as conf/gpu names it; "" for another one."""
    return _type_of(str(record.environment.gpus[0].get("model", ""))) if record.environment.gpus else ""


@cache
def _type_of(device: str) -> str:
    return type_of_device(device)


def measured(
    published: str, records: Iterable[Record], profiles: Mapping[str, CaseWork], rates: Mapping[str, Rates]
) -> tuple[Measured, ...]:
    """Return the timed cases of our own kernels among the records of a published set, in order of their names.

    profiles: by profile_key. rates: by type of GPU. ValueError for a case without a profile.
    """
    worlds: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if is_evidence(record):
            worlds.setdefault((profile_key(record), gpu_of(record)), []).append(record)
    if missing := sorted({key for key, _ in worlds} - set(profiles)):
        raise ValueError(
            f"{published}: {counted(len(missing), 'timed case')} without a profile, such as {missing[0]}; run {COMMAND}"
        )
    return tuple(_measured(published, worlds[key, gpu], profiles[key], rates[gpu], gpu) for key, gpu in sorted(worlds))


def _measured(published: str, worlds: Sequence[Record], profile: CaseWork, rates: Rates, gpu: str) -> Measured:
    case, times = worlds[0].case, [one.timing for one in worlds if one.timing is not None]
    return Measured(
        published=published,
        gpu=gpu,
        op=case.op,
        algorithm=case.algorithm,
        dtype=case.dtype,
        world_size=case.world_size,
        size_bytes=case.size_bytes,
        time_us=statistics.median(one.median_us for one in times),
        terms=terms_of(profile, rates, float(times[0].footprint_bytes)),
    )
