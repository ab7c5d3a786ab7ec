"""symlab calibrate: run the probes as one command with records, print what they found, write the file of a type.

Floors come from records alone, so that those of an earlier calibration (--from) give the same file.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cases.record.record import Record
from memory.atomic_file import replacing
from reports.record.bundle import read
from reports.table.sheet import one_here
from reports.table.text import counted
from runner.command.runnable_jobs import run_quietly
from runner.gpu.gpu_type import Floors, impossible
from runner.gpu.names import CONF, SUFFIX
from runner.gpu.reading import gpu_type, type_of_device
from runner.request.compose import ComposedJob
from runner.request_error import RequestError
from runner.world.fabrics import HostOffer, look, resolve
from symlab.speed.best import gpu_name
from symlab.speed.calibrate.document import file_of, section_of
from symlab.speed.calibrate.jobs import asked_request, probe_jobs
from symlab.speed.calibrate.measured import Calibration, Figure, calibration
from symlab.speed.calibrate.verb import Options as Options


@dataclass(frozen=True, slots=True)
class Seams:
    """What a calibration works with; tests put their own in. ran: runs jobs and returns the folder of their records.
    machine: what there is here; gpu: the name of its GPUs, as CUDA reports it."""

    ran: Callable[[Sequence[str], Sequence[ComposedJob]], Path] = run_quietly
    machine: Callable[[], HostOffer] = look
    gpu: Callable[[], str] = gpu_name


def calibrate(options: Options, given: Sequence[str] = (), seams: Seams | None = None) -> int:
    """Do what a command line asks for. Returns the exit code: 0 if every probe passed, else 1. RequestError for a wrong
    request, and for a machine without GPUs."""
    seams = seams or Seams()
    _check(options)
    if options.records:
        return _told(options, read_records(options.records))
    request, configuration = asked_request(options.overrides, options.config_dir)
    fabric, why = resolve(request.fabric, request.world_size, seams.machine)
    if fabric.simulated:
        raise RequestError(
            f"floors are measured on GPUs, and this would be simulated: {why} (fabric), run it where there are 2 GPUs "
            "and the gpu extra"
        )
    _type_of(options, seams.gpu())  # what can't be written is known before anything runs
    jobs = probe_jobs(options.overrides, configuration)
    return _told(options, read_records([seams.ran(("calibrate", *given), jobs)]))


def read_records(places: Sequence[Path]) -> list[Record]:
    """Return the records of places. RequestError for what can't be read."""
    try:
        return read(places)
    except ValueError as error:
        raise RequestError(f"{error} (--from)") from None


def _check(options: Options) -> None:
    """RequestError for options that exclude each other, and for a file that can't be made."""
    if options.records and options.overrides:
        raise RequestError("--from only reads records (--from), leave overrides out")
    place = options.output
    if place is None:
        return
    if place.suffix != SUFFIX:
        raise RequestError(f"{place} is no file of a GPU (-o), give a name that ends in {SUFFIX}")
    if place.is_dir() or not place.absolute().parent.is_dir():
        raise RequestError(f"{place} can't be written (-o), give a file in a folder that exists")
    if place.exists():
        raise RequestError(f"{place} is there (-o), give a new file, or none, and put what is printed into that one")


def _folders(options: Options) -> tuple[Path, ...]:
    """The folders of configurations that a command knows."""
    return (CONF, options.config_dir) if options.config_dir else (CONF,)


def _type_of(options: Options, device: str) -> str:
    """The name of the type whose floors they are. RequestError for a device that no type names."""
    folders = _folders(options)
    name = options.type or type_of_device(device, folders)
    if not name:
        raise RequestError(f"no type of conf/gpu names the device '{device}' (--type), give the name of one")
    found = gpu_type(name, folders)
    if device and device not in found.devices:
        raise RequestError(
            f"{name} is not '{device}', its devices are {', '.join(found.devices) or 'none'} (--type), give the name "
            "of a type that names it"
        )
    return found.name


def _told(options: Options, records: Sequence[Record]) -> int:
    """Print what records say, and print or write the floors."""
    try:
        found = calibration(records)
    except ValueError as error:
        raise RequestError(f"{error} (--from)") from None
    name = _type_of(options, found.device)
    print(_text(found, name))
    for probe, problem in found.problems.items():
        print(f"{probe}: {problem}")
    if found.floors is None:
        print(f"{counted(len(found.problems), 'probe')} without a figure, so that no floors are written")
        return 1
    if problem := impossible(found.floors, gpu_type(name, _folders(options)).links):
        print(f"{problem}: that is no measurement of {name}, so that no floors are written")
        return 1
    _give(options, found.floors, name)
    return 0


def _give(options: Options, floors: Floors, name: str) -> None:
    """Write the file, or print the floors."""
    if options.output is None:
        print(f"\n{section_of(floors)}", end="")
        return
    try:
        with replacing(options.output) as beside:
            beside.write_text(file_of(floors, name, _folders(options)), encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{options.output}: {error.strerror} (-o), give a file that can be written") from None
    print(f"floors of {name}: {options.output}, of records {', '.join(floors.records)}")
    print(f"use them with fabric.gpu={shlex.quote(str(options.output))}")


def _text(found: Calibration, name: str) -> str:
    """The figures as a table."""
    title = f"{found.device} ({name}), {found.ranks} ranks"
    if not found.figures:
        return f"{title}: no probe has a figure"
    return one_here(title, list(map(_row, found.figures)), ("by", "value", "launch us"))


def _row(one: Figure) -> dict[str, str]:
    probe = one.probe
    return {
        "floor": probe.floor,
        "by": "-" if probe.count is None else str(probe.count),
        "value": f"{one.value:.4g}",
        "unit": "GB/s" if probe.is_bandwidth else "us",
        "launch us": f"{one.time_us:.4g}",
        "what": probe.what,
    }
