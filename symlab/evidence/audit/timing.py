"""Items "timing" and "limit": how calls were timed, against what was asked for, and the bandwidth against the link's
limit, which follows from the type of GPU and from what all worlds on the same GPUs measured."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cases.ops import OPS, collective
from cases.record.record import Record
from cases.record.timing import LinkLimit
from reports.table.text import counted
from symlab.evidence.audit.clocks import untimed
from symlab.evidence.audit.gpu_models import known_models
from symlab.evidence.audit.items import Outcome, Point, held
from symlab.evidence.audit.machine import gpus_of
from symlab.evidence.audit.material import Material

LARGE_BYTES = 64 << 20
"""Minimum size of a copy that has the rate of the links."""

PCIE_GBPS = 128.0
"""GB/s of one direction of 16 lanes of PCIe 6."""

LEAST_SHARE = 0.5
"""Minimum of the link's measured limit, as a share of what the NVLinks carry. On two and four H200 it was 0.86."""

LIMITS_APART = 0.1
"""Maximum difference of the link's limit in two worlds on the same GPUs, as a share of their median. Measured on two
and four H200: below 1 %."""

_ROUNDING = 1e-9


def timing(material: Material) -> Iterator[Point]:
    """Mode, window, state of L2 and calls of a sample, against the configuration; the bus factor against the op."""
    if not material.timed:
        yield untimed(material)
        return
    sentences = (f"{one.id}: {text}" for one in material.timed for text in (*_otherwise(one), *_bandwidth(one)))
    yield from held(sentences, f"{counted(len(material.timed), 'timing')}: as asked for, with the bus factor of the op")
    if not any(map(asked_timing, material.timed)):
        yield Point(Outcome.NOT_CAPTURED, "what was asked for: no configuration says")


def asked_timing(record: Record) -> dict[str, Any]:
    """Return the timing section of a record's configuration, empty if it has none."""
    asked = (record.request.configuration or {}).get("timing")
    return asked if isinstance(asked, dict) else {}


def _otherwise(record: Record) -> Iterator[str]:
    asked = asked_timing(record)
    wanted: dict[str, Any] = {key: asked[key] for key in ("mode", "window", "l2") if key in asked}
    wanted |= {"calls_per_sample": asked["calls"]} if asked.get("calls") else {}
    for key, value in wanted.items():
        if getattr(record.timing, key) != value:
            yield f"{key} {getattr(record.timing, key)}, asked was {value}"


def _bandwidth(record: Record) -> Iterator[str]:
    """What makes a bandwidth of a time: bytes and bus factor, which follow from the op."""
    made = record.timing
    if made is None or record.case.op not in OPS:
        return
    factor = collective(record.case.op).bus_factor(record.case.world_size)
    if not math.isclose(made.bus_factor, factor, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        yield f"bus factor {made.bus_factor:g}, {record.case.op} on {record.case.world_size} ranks has {factor:g}"
    if made.moved_bytes is not None:
        yield f"bandwidth of {made.moved_bytes} declared bytes, {record.case.op} has its size"


def limit(material: Material) -> Iterator[Point]:
    """Bus bandwidth against the measured limit of the link, and that limit itself."""
    if not material.timed:
        yield untimed(material)
        return
    shares: list[float] = []
    sentences: list[str] = []
    for record in material.timed:
        sentences += _of_type(record)
        share = record.timing.of_limit(record.case.size_bytes) if record.timing is not None else None
        if share is not None:
            shares.append(share)
            sentences += [f"{record.id}: busbw is {share:.1%} of the limit"] if share > 1 else []
    good = f"busbw of {counted(len(shares), 'timing')} is at most {max(shares):.1%} of its limit" if shares else ""
    yield from held((*sentences, *_of_worlds(material), *_without(material.timed)), good)
    if unknown := sum(one.timing is not None and one.timing.limit is None for one in material.timed):
        yield Point(Outcome.NOT_CAPTURED, f"the link's limit of {counted(unknown, 'timing')}")


def _of_type(record: Record) -> Iterator[str]:
    """A limit of the link that the NVLinks of the GPUs' type can't carry, or that is far below what they carry."""
    measured = record.timing.limit if record.timing is not None else None
    if measured is None:
        return
    gpus = record.environment.gpus or ()
    active = [count for gpu in gpus if (count := _active(gpu)) is not None]
    for name, model in known_models(str(gpu.get("model")) for gpu in gpus).items():
        carried = min([model.links, *active]) * model.link_gbps
        most = model.links * model.link_gbps or PCIE_GBPS
        least = min(measured.push_gbps, measured.pull_gbps)
        if measured.gbps > most:
            what = f"the NVLinks of {name} carry" if model.links else f"{name} has no NVLinks, and PCIe carries"
            yield f"the link's limit is {measured.gbps:.1f} GB/s, {what} {most:g}"
        elif least < LEAST_SHARE * carried and measured.size_bytes >= LARGE_BYTES:
            yield f"the link's limit is {least:.1f} GB/s, the NVLinks of {name} carry {carried:g}"


def _active(gpu: Mapping[str, Any]) -> int | None:
    """The number of a GPU's active NVLinks; None if the environment does not say."""
    links = gpu.get("nvlink")
    counts = [links.get(key) for key in ("active", "count")] if isinstance(links, Mapping) else []
    return next((count for count in counts if type(count) is int), None)


def _of_worlds(material: Material) -> Iterator[str]:
    """The link's limit: one in each job of a world, and nearly the same in all worlds on the same GPUs."""
    alike: dict[tuple[object, ...], list[tuple[LinkLimit, str]]] = {}
    by_job: dict[tuple[str, int, int], set[LinkLimit]] = {}
    for name, world in material.worlds.items():
        for record in world:
            if record.timing is None or record.timing.limit is None:
                continue
            measured = record.timing.limit
            by_job.setdefault((name, record.request.job, record.case.world_size), set()).add(measured)
            key = gpus_of(record), record.case.world_size, measured.size_bytes
            alike.setdefault(key, []).append((measured, name))
    for (command, job, ranks), found in by_job.items():
        if len(found) > 1:
            yield f"job {job + 1} of {command} has {len(found)} limits of the link on {ranks} ranks, one is measured"
    for members in alike.values():
        yield from _spread(members)


def _spread(members: Sequence[tuple[LinkLimit, str]]) -> Iterator[str]:
    for what in ("push_gbps", "pull_gbps"):
        values = {name: getattr(measured, what) for measured, name in members}
        low, high = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
        if values[high] - values[low] > LIMITS_APART * statistics.median(values.values()):
            says = f"{what} {values[low]:.1f} in {low} and {values[high]:.1f} in {high}"
            yield f"the link's limit is not one, on the same GPUs: {says}"


def _without(timed: Sequence[Record]) -> Iterator[str]:
    """Timings without a limit whose bus bandwidth is above that which others measured on as many ranks."""
    known: dict[int, float] = {}
    for record in timed:
        if record.timing is not None and record.timing.limit is not None:
            ranks = record.case.world_size
            known[ranks] = max(known.get(ranks, 0.0), record.timing.limit.gbps)
    for record in timed:
        most = known.get(record.case.world_size)
        if record.timing is not None and record.timing.limit is None and most is not None:
            busbw = record.timing.busbw_gbps(record.case.size_bytes)
            if busbw > most:
                yield f"{record.id} has no limit of its own, and {busbw:.1f} GB/s, above the {most:.1f} of others"
