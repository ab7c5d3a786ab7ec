"""From records of probes to floors.

A record counts if it passed, was checked, and has a time of a GPU's clock; if its buffers and arguments are those of
today's probe; and if it launched as many blocks as the probe says. Of several records of a probe the median counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cases.record.record import Record, Status
from reports.record import bundle
from runner.gpu.gpu_type import Floors, Source, SourceKind
from symlab.speed.calibrate.jobs import is_same_section
from symlab.speed.calibrate.probes import BY_NAME, ON_GPUS, PROBES, Probe

MODULE = "kernels.floors."


@dataclass(frozen=True, slots=True)
class Figure:
    """What a probe found: the time of a launch (the median over samples of the maximum over ranks) in microseconds, and
    the floor, in microseconds or GB/s."""

    probe: Probe
    time_us: float
    value: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that records of probes say: figures in the order of PROBES, why probes have none, and the floors.

    device: the GPUs' name, as CUDA reports it. floors: None if a probe has no figure.
    """

    device: str
    ranks: int
    figures: tuple[Figure, ...]
    problems: Mapping[str, str]
    floors: Floors | None


def probe_of(record: Record) -> Probe | None:
    """Return the probe that a record is of; None for another record."""
    section = _section(record)
    place = str(section.get("kernel", ""))
    module, _, name = place.removeprefix(MODULE).partition(":")
    probe = BY_NAME.get(name)
    return probe if probe is not None and place.startswith(MODULE) and probe.module == module else None


def calibration(records: Sequence[Record]) -> Calibration:
    """Return what records of probes say; others are left out.

    ValueError for none, and for records of several types of GPU or several numbers of ranks.
    """
    found = [(record, probe) for record in records if (probe := probe_of(record)) is not None]
    if not found:
        raise ValueError("there is no record of a calibration: give the folder that symlab calibrate wrote")
    devices = {name for record, _ in found for name in _devices(record)}
    ranks = {record.case.world_size for record, _ in found}
    if len(devices) > 1 or len(ranks) > 1:
        several = sorted(devices) if len(devices) > 1 else [f"{count} ranks" for count in sorted(ranks)]
        raise ValueError(f"records of {', '.join(several)}: a calibration is of one type of GPU and one number of them")
    times, problems = _times(found)
    count = ranks.pop()
    figures, more = _figures(times)
    problems |= more
    device = next(iter(devices), "")
    used = [record for record, probe in found if probe.name in times]
    complete = not problems and bool(device)
    floors = _floors(figures, used, device, count) if complete else None
    return Calibration(device, count, tuple(figures), problems, floors)


def _times(found: Sequence[tuple[Record, Probe]]) -> tuple[dict[str, float], dict[str, str]]:
    """By probe the time of a launch, and why others have none."""
    lists: dict[str, list[float]] = {}
    problems = {probe.name: "it was not measured" for probe in PROBES}
    for record, probe in found:
        problem = _problem(record, probe)
        if problem:
            problems[probe.name] = problem
        elif record.timing is not None:
            lists.setdefault(probe.name, []).append(record.timing.median_us)
    for name in lists:
        if problems[name] == "it was not measured":
            del problems[name]
    return {name: statistics.median(values) for name, values in lists.items() if name not in problems}, problems


def _problem(record: Record, probe: Probe) -> str:
    """Why a record gives no figure; "" if it does."""
    if record.status is not Status.PASSED:
        return f"{record.status}: {record.reason}"
    if record.fabric is None or record.fabric.simulated:
        return "it was simulated: there is no time"
    if record.check is None or not record.check.launches:
        return "its results were not checked"
    if record.timing is None:
        return "it was not timed"
    if record.timing.mode != "graph" or record.timing.window != "kernel":
        return (
            f"it was timed as {record.timing.mode}, window {record.timing.window}, and floors are of graphs of kernels"
        )
    if not is_same_section(_section(record), probe.section(ON_GPUS)):
        return "its buffers or arguments are not those of today's probe"
    if record.kernel is None or record.kernel.grid != probe.blocks:
        return f"it launched {record.kernel.grid if record.kernel else 'no'} blocks, not {probe.blocks}"
    return ""


def _section(record: Record) -> Mapping[str, Any]:
    section = (record.request.configuration or {}).get("custom") if record.request is not None else None
    return section if isinstance(section, Mapping) else {}


def _devices(record: Record) -> set[str]:
    """The names of the GPUs of a record's machine."""
    gpus = record.environment.gpus if record.environment is not None else None
    return {str(one["model"]) for one in gpus or () if one.get("model")}


def _figures(times: Mapping[str, float]) -> tuple[list[Figure], dict[str, str]]:
    """What the probes found, and what is wrong with times that no launch can have."""
    figures, problems = [], {}
    for probe in PROBES:
        empty_us = times.get(f"empty_{probe.blocks}")
        if probe.name not in times or (empty_us is None and probe.module != "empty_node"):
            continue
        try:
            value = probe.value(times[probe.name], empty_us or 0.0, ON_GPUS)
        except ValueError as error:
            problems[probe.name] = str(error)
        else:
            figures.append(Figure(probe, times[probe.name], value))
    return figures, problems


def _floors(figures: Sequence[Figure], records: Sequence[Record], device: str, ranks: int) -> Floors:
    """The floors of a whole calibration, rounded to what a measurement tells: four digits."""
    values: dict[str, Any] = {}
    for one in figures:
        value = float(f"{one.value:.4g}")
        if one.probe.count is None:
            values[one.probe.floor] = value
        else:
            values.setdefault(one.probe.floor, {})[one.probe.count] = value
    days = sorted({record.started[:10] for record in records})
    commits = sorted({commit[:12] for record in records if (commit := _commit(record))})
    at = f" at {', '.join(commits)}" if commits else ""
    text = f"{' and '.join(days)}, {ranks} x {device}, symlab calibrate{at}"
    return Floors(
        source=Source(SourceKind.measured, text),
        ranks=ranks,
        records=(bundle.digest(records),),
        **values,
    )


def _commit(record: Record) -> str:
    git = record.environment.git if record.environment is not None else None
    return str((git or {}).get("commit") or "")
