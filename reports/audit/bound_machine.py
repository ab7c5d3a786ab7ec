"""The machine and its software in each record: libraries against packages, clocks, ranks, the heap, those timed in
turns; and the worlds that were timed on the same GPUs against each other."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from cases.record.record import WHOLE_SINCE, Record
from reports.audit.bound_gpus import model_of
from reports.audit.bound_worlds import gpus_of
from reports.audit.contradiction import Contradiction
from reports.record.code_changes import code_changes
from reports.table.text import counted

REPOSITORY, SOFTWARE, MACHINE, VARIABLES, CLOCKS, SAMPLES, BASELINES = 2, 4, 5, 6, 7, 11, 14

LEAST_PYTHON = (3, 11)
"""The first version of Python that symlab runs on."""

LEAST_US = 0.05
"""Minimum time of one call: about a hundred cycles of a GPU's clock, in which no kernel begins and ends."""

RANKS_APART = 1000.0
"""Maximum ratio of the medians of two ranks' samples of one call. In what is published it is 1.04."""

RANGES = {"sm_mhz": (0, 5000), "memory_mhz": (0, 20000), "power_w": (0, 3000), "temperature_c": (-40, 150)}
"""What sensors of a GPU can read: beyond, one is broken, or the figure is invented."""

_LIBRARIES = (("NCCL", "nvidia-nccl-cu"), ("NVSHMEM", "nvidia-nvshmem-cu"), ("PyTorch", "torch"), ("SGLang", "sglang"))
"""The beginning of a record's library, and that of its package's name."""

_IN_FABRIC = (("libnvshmem", "nvidia-nvshmem-cu"), ("nvshmem4py", "nvshmem4py-cu"))

_HOST = ("cpu_model", "kernel", "machine", "cores")
"""What one machine has in all worlds. Not its name: each container may have one of its own."""

_OF_A_LAUNCH = re.compile(r"CUDA_VISIBLE_DEVICES$|SLURM_|TORCHELASTIC_|(LOCAL_|GROUP_)?RANK$|.*(PORT|RUN_ID|JOB_ID)$")
"""Variables that differ between any two launches."""


def contradictions(world: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield what the records of one world say of machine, software and clocks, and not alike; each sentence once."""
    found: dict[tuple[int, str], None] = {}
    for record in world:
        for item, sentences in (
            (SOFTWARE, _versions(record)),
            (SOFTWARE, _python(record)),
            (MACHINE, _fabric(record)),
            (MACHINE, _listed_gpus(record)),
            (CLOCKS, _sensors(record)),
            (SAMPLES, _possible_times(record)),
        ):
            found |= {(item, sentence): None for sentence in sentences}
    found |= dict.fromkeys(_one_process(world))
    name = world[0].request.command or world[0].id
    yield from (Contradiction(item, f"{name}: {sentence}") for item, sentence in found)


def _versions(record: Record) -> Iterator[str]:
    """Libraries that a record names with a version, against the packages of its environment."""
    packages = record.environment.packages or {}
    said = [
        (name, prefix, record.library)
        for name, prefix in _LIBRARIES
        if record.library.startswith(f"{name} ") and not (name == "NCCL" and _loads_another_nccl(record))
    ]
    if record.fabric is not None and not record.fabric.simulated:
        parts = [part.strip() for part in record.fabric.description.split(",")]
        said += [(name, at, part) for name, at in _IN_FABRIC for part in parts if part.startswith(f"{name} ")]
    said += [
        (tool, tool, part.strip())
        for tool in ("nvidia-cutlass-dsl",)
        for part in (record.kernel.compiler.split(",") if record.kernel is not None else ())
        if part.strip().startswith(f"{tool} ")
    ]
    torch = (record.environment.torch or {}).get("version")
    said += [("torch", "torch", f"torch {torch}")] if isinstance(torch, str) else []
    for name, prefix, text in said:
        version = text.removeprefix(f"{name} ").partition(" ")[0]
        for package, there in packages.items():
            if _is_package(package, prefix) and isinstance(there, str) and not _is_version(version, there):
                yield f"{text} is recorded, and the package {package} {there}"


def _loads_another_nccl(record: Record) -> bool:
    """Whether the record's job had its ranks load an NCCL that is not the installed package's: by library.nccl, or by
    the variable that preloads libraries."""
    asked = (record.request.configuration or {}).get("library")
    allowed = (record.environment.variables or {}).get("allowed")
    preloaded = str(allowed.get("LD_PRELOAD", "")) if isinstance(allowed, dict) else ""
    return (isinstance(asked, dict) and asked.get("nccl") is not None) or "nccl" in preloaded


def _is_package(package: str, prefix: str) -> bool:
    return package == prefix or (prefix.endswith("-cu") and package.removeprefix(prefix).isdigit())


def _is_version(said: str, package: str) -> bool:
    """Whether two texts are one version: one may have the build after a plus sign, or more parts than the other."""
    one, other = (text.partition("+")[0].split(".") for text in (said, package))
    fewest = min(len(one), len(other))
    return one[:fewest] == other[:fewest]


def _python(record: Record) -> Iterator[str]:
    version = (record.environment.python or {}).get("version")
    known = re.match(r"(\d{1,4})\.(\d{1,4})", version) if isinstance(version, str) else None
    if known is not None and tuple(map(int, known.groups())) < LEAST_PYTHON:
        yield f"Python {version} is recorded, and symlab needs {'.'.join(map(str, LEAST_PYTHON))} or later"


def _one_process(world: Sequence[Record]) -> Iterator[tuple[int, str]]:
    """What is not the same in two records of a world, which is one process: its code and its software are looked up
    once."""
    first, *others = {id(record.environment): record.environment for record in world}.values()
    for other in others:
        for change in code_changes(first, other):
            is_software = change.startswith(("Python", "torch", "package"))
            yield (SOFTWARE if is_software else REPOSITORY), f"in two records of one world {change}"


def _listed_gpus(record: Record) -> Iterator[str]:
    """GPUs that an environment lists, against what it says of the driver and of the ranks."""
    environment, fabric = record.environment, record.fabric
    reasons = environment.not_captured if isinstance(environment.not_captured, Mapping) else None
    if environment.gpus and reasons is not None and "gpus" in reasons:
        yield f"{counted(len(environment.gpus), 'GPU')} listed, and not captured for the reason '{reasons['gpus']}'"
    is_todays = record.schema >= WHOLE_SINCE and reasons is not None
    if is_todays and environment.gpus and environment.cuda_driver is None and "cuda_driver" not in (reasons or {}):
        yield f"{counted(len(environment.gpus), 'GPU')} listed, and neither the driver's CUDA nor why it is unknown"
    if fabric is not None and fabric.simulated and (environment.world or {}).get("ranks"):
        yield "the fabric is simulated, and ranks are said to have devices"


def _fabric(record: Record) -> Iterator[str]:
    fabric = record.fabric
    if fabric is None:
        return
    if fabric.simulated and (model_of(fabric.description.partition(",")[0]) or "libnvshmem" in fabric.description):
        yield f"the fabric is simulated, and said to be {fabric.description}"
    if record.check is not None and 0 < fabric.heap_bytes < record.case.size_bytes:
        yield f"a heap of {fabric.heap_bytes:,} B has no room for {record.case.size_bytes:,} B, which were checked"


def _sensors(record: Record) -> Iterator[str]:
    for device in record.timing.devices if record.timing is not None else ():
        for state in device.values():
            for name, (low, high) in RANGES.items():
                value = state.get(name) if isinstance(state, dict) else None
                if isinstance(value, (int, float)) and not low <= value <= high:
                    yield f"{name} was {value}, sensors give {low} to {high}"


def _possible_times(record: Record) -> Iterator[str]:
    rows = record.timing.samples_us if record.timing is not None else ()
    if not rows:
        return
    shortest = min(map(min, rows))
    if shortest < LEAST_US:
        yield f"{record.id} has a sample of {shortest:.3g} us, and no call takes less than {LEAST_US} us"
    medians = [statistics.median(row) for row in rows]
    if max(medians) > RANKS_APART * min(medians):
        yield f"{record.id} took {min(medians):.3g} us on one rank and {max(medians):.3g} us on another"


def strangers(world: Sequence[Record], not_run: Iterable[str]) -> Iterator[Contradiction]:
    """Yield the algorithms that a case was timed in turns with, and of which its command has no record. not_run: the
    ids of the cases that the command did not come to."""
    known = {(record.case.op, record.case.algorithm) for record in world}
    for record in world if len(world) > 1 else ():
        for name in record.timing.interleaved_with if record.timing is not None else ():
            is_left = any(case.startswith(f"{record.case.op}-{name}-") for case in not_run)
            if (record.case.op, name) not in known and not is_left:
                says = f"{record.id} was timed in turns with {name}, of which there is no record"
                yield Contradiction(BASELINES, f"{record.request.command or record.id}: {says}")


def of_worlds(worlds: Mapping[str, Sequence[Record]]) -> Iterator[Contradiction]:
    """Yield what worlds that were timed on the same GPUs say differently of their machine and their variables."""
    known: dict[frozenset[str], tuple[str, Record]] = {}
    for name, world in worlds.items():
        for uuids, record in {_gpus(one): one for one in world if _gpus(one)}.items():
            other_name, other = known.setdefault(uuids, (name, record))
            if other_name == name:
                continue
            for item, text in (*_hosts_apart(other, record), *_variables_apart(other, record)):
                yield Contradiction(item, f"{text}, in {other_name} and in {name}, on the same GPUs")


def _gpus(record: Record) -> frozenset[str]:
    """The UUIDs of all GPUs of the machine that timed a record, else of those that it was timed on: two worlds may use
    other GPUs of one machine."""
    if record.timing is None:
        return frozenset()
    return frozenset(str(gpu["uuid"]) for gpu in record.environment.gpus or () if gpu.get("uuid")) or gpus_of(record)


def _hosts_apart(one: Record, other: Record) -> Iterator[tuple[int, str]]:
    sides = [record.environment.host or {} for record in (one, other)]
    for key in _HOST:
        values = [side.get(key) for side in sides]
        if None not in values and values[0] != values[1]:
            yield MACHINE, f"host.{key} is {values[0]} and {values[1]}"


def _variables_apart(one: Record, other: Record) -> Iterator[tuple[int, str]]:
    sides = [(record.environment.variables or {}).get("allowed") for record in (one, other)]
    ours, theirs = (side if isinstance(side, dict) else None for side in sides)
    if ours is None or theirs is None:
        return
    for key in dict.fromkeys([*ours, *theirs]):
        if ours.get(key) != theirs.get(key) and not _OF_A_LAUNCH.match(key):
            yield VARIABLES, f"{key} is {ours.get(key, 'not set')} and {theirs.get(key, 'not set')}"
