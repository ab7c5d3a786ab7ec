"""What was measured: published cases of our kernels with their times, their profiles and what stood beside them."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from cases.record.record import Record
from reports.table.text import counted
from runner.gpu.reading import type_of_device
from runner.predict.case_work import CaseWork
from runner.predict.model import Rates, Terms, terms_of

COMMAND = "symlab publish --derive"
"""What makes everything that follows from published bundles, profiles too."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A case of a published set. published: the set's folder. gpu: the type, as conf/gpu names it. day: on which its
    first world began, in UTC. time_us: the median over its worlds. blocks, threads: of its launch. footprint_bytes: of
    all buffers that it and what was measured in turns with it used in turn, on a GPU. bus_bytes: the bus factor times
    the size."""

    id: str
    published: str
    gpu: str
    day: str
    op: str
    algorithm: str
    dtype: str
    world_size: int
    size_bytes: int
    time_us: float
    blocks: int
    threads: int
    footprint_bytes: float
    bus_bytes: float
    terms: Terms

    @property
    def series(self) -> tuple[str, str, str, int]:
        """Return op, algorithm, dtype and number of ranks: what the cases of one curve share."""
        return self.op, self.algorithm, self.dtype, self.world_size


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
    first = worlds[0]
    timing, kernel, case = first.timing, first.kernel, first.case
    assert timing is not None
    assert kernel is not None
    footprint_bytes = float(timing.footprint_bytes)
    return Measured(
        id=first.id,
        published=published,
        gpu=gpu,
        day=min(one.started for one in worlds)[:10],
        op=case.op,
        algorithm=case.algorithm,
        dtype=case.dtype,
        world_size=case.world_size,
        size_bytes=case.size_bytes,
        time_us=statistics.median(one.timing.median_us for one in worlds if one.timing is not None),
        blocks=_product(kernel.grid),
        threads=_product(kernel.block),
        footprint_bytes=footprint_bytes,
        bus_bytes=timing.bus_factor * case.size_bytes,
        terms=terms_of(profile, rates, footprint_bytes),
    )


def _product(extent: int | Sequence[int]) -> int:
    if isinstance(extent, int):
        return extent
    product = 1
    for one in extent:
        product *= one
    return product
