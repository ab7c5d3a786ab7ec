"""Items "software", "machine" and "variables": where the records were made.

Worlds are compared with each other: the software that a case ran on, and the machine and the variables of worlds on the
same GPUs. The code must be one that the type of GPU can run. All else of an environment is the records' word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cases.documents import encoded
from cases.record.record import Record
from reports.table.text import counted
from symlab.evidence.audit.gpu_models import known_models, model_of
from symlab.evidence.audit.items import Outcome, Point, contradicted, listed
from symlab.evidence.audit.material import Material, values_at
from symlab.evidence.audit.statistics import world_of

SOFTWARE = ("python.version", "torch", "packages", "cuda_driver", "gpus.driver")
"""What must be the same in all worlds of a case, or figures over them mean nothing."""

_HOST = ("cpu_model", "kernel", "machine", "cores")
"""What one machine has in all worlds. Not its name: each container may have one of its own."""

_OF_A_LAUNCH = re.compile(r"CUDA_VISIBLE_DEVICES$|SLURM_|TORCHELASTIC_|(LOCAL_|GROUP_)?RANK$|.*(PORT|RUN_ID|JOB_ID)$")
"""Variables that differ between any two launches."""


def software(material: Material) -> Iterator[Point]:
    """Python, packages and drivers, the same in all worlds of a case."""
    wanted = {"Python": "python.version", "packages": "packages.torch", "CUDA that torch is built for": "torch.version"}
    if material.on_gpus:
        wanted |= {"driver": "gpus.driver", "CUDA of the driver": "cuda_driver"}
        wanted |= {"NCCL": "packages.nvidia-nccl-cu13", "NVSHMEM": "packages.nvidia-nvshmem-cu13"}
    if any(record.kernel is not None for record in material.records):
        wanted |= {"CuTe DSL": "packages.nvidia-cutlass-dsl"}
    yield from captured(material, wanted)
    yield _alike(material)


def _alike(material: Material) -> Point:
    """Whether each case ran on one software in all of its worlds, and each world on one."""
    known = {id(one.environment): _software_of(encoded(one.environment)) for one in material.records}
    odd: list[str] = []
    compared = 0
    for name, members in (*material.by_case.items(), *material.worlds.items()):
        found = {id(one.environment): known[id(one.environment)] for one in members}
        parts = {part: {repr(one[part]): one[part] for one in found.values() if part in one} for part in SOFTWARE}
        compared += (
            name in material.by_case and len({world_of(one) for one in members if known[id(one.environment)]}) > 1
        )
        odd += [f"{name}: {part} is {_apart(*values.values())}" for part, values in parts.items() if len(values) > 1]
        libraries = dict.fromkeys(one.library for one in members) if name in material.by_case else ()
        odd += [f"{name}: {' and '.join(libraries)}"] if len(libraries) > 1 else []
    if odd:
        return Point(Outcome.FINDING, f"worlds of one case ran on different software: {listed(odd)}")
    if len(material.worlds) < 2:
        return Point(Outcome.DOES_NOT_APPLY, "one world: nothing to compare it with")
    if not compared:
        says = f"of {len(material.worlds)} worlds no two have a case in common and say what software they ran on"
        return Point(Outcome.NOT_COMPARABLE, says)
    return Point(Outcome.CAPTURED, f"{counted(compared, 'case')}: the same software in all worlds")


def _software_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {part: values for part in SOFTWARE if (values := values_at(environment, part))}


def _apart(one: Any, other: Any, *_: Any) -> str:
    """Two values in words; of two dictionaries what is not the same."""
    if isinstance(one[0], dict) and isinstance(other[0], dict):
        keys = [key for key in {**one[0], **other[0]} if one[0].get(key) != other[0].get(key)]
        return listed(f"{key} {one[0].get(key)} and {other[0].get(key)}" for key in keys)
    return f"{listed(map(str, one))} and {listed(map(str, other))}"


def machine(material: Material) -> Iterator[Point]:
    """Host and GPUs, whose type must be able to run the code."""
    wanted = {"host": "host.name", "kernel": "host.kernel", "CPU": "host.cpu_model", "NUMA nodes": "host.numa_nodes"}
    if material.on_gpus:
        wanted |= {"GPU model": "gpus.model", "GPU UUID": "gpus.uuid", "links": "gpus.nvlink.count"}
        wanted |= {"fabric state": "gpus.fabric.state", "MIG": "gpus.mig"}
    yield from captured(material, wanted)
    yield from contradicted(text for record in material.on_gpus for text in (*_types(record), *_gpus_apart(record)))
    yield from contradicted(_hosts_apart(material))


def _types(record: Record) -> Iterator[str]:
    """Code for another architecture than the GPUs' type has, and a fabric of another type."""
    assert record.fabric is not None
    said, arch = record.fabric.description.partition(",")[0], re.sub("[a-z]$", "", record.fabric.arch)
    names = [str(gpu.get("model")) for gpu in record.environment.gpus or ()]
    if names and model_of(said) is not None and said not in names:
        yield f"the fabric says {said}, the machine has {', '.join(sorted(set(names)))}"
    for name, model in known_models([*names, said]).items():
        if arch != model.arch:
            yield f"code for {record.fabric.arch} ran on {name}, which is {model.arch}"


def _gpus_apart(record: Record) -> Iterator[str]:
    """What a timing's GPUs contradict: each rank has one of its own, of those that the machine lists once each."""
    had = [_uuids(device) for device in record.timing.devices] if record.timing is not None else []
    known = [str(gpu["uuid"]) for gpu in record.environment.gpus or () if gpu.get("uuid")]
    hosts = {rank.get("host") for rank in (record.environment.world or {}).get("ranks") or ()}
    if strange := sorted(gpus_of(record) - set(known)) if known and len(hosts) < 2 else []:
        yield f"{record.id} ran on {strange[0]}, which the machine does not list"
    if len(gpus_of(record)) != sum(map(bool, had)) or any(len(some) > 1 for some in had):
        yield f"{record.id} had {len(gpus_of(record))} GPUs for {len(had)} ranks"
    if len(set(known)) < len(known):
        yield f"{record.id}: the machine lists {len(known)} GPUs, {len(set(known))} of them different"


def _uuids(device: Mapping[str, Any]) -> set[str]:
    return {str(state["uuid"]) for state in device.values() if isinstance(state, dict) and "uuid" in state}


def gpus_of(record: Record) -> frozenset[str]:
    """Return the UUIDs of the GPUs that a timing says its ranks had."""
    return frozenset().union(*map(_uuids, record.timing.devices)) if record.timing is not None else frozenset()


def _same_gpus(material: Material) -> Iterator[tuple[str, Record, Record]]:
    """Yield pairs of records that worlds timed on the same GPUs of a machine, with the names of these worlds: two
    worlds may use other GPUs of one machine."""
    known: dict[frozenset[str], tuple[str, Record]] = {}
    for name, world in material.worlds.items():
        timed = {id(one.environment): one for one in world if one.timing is not None}
        for record in timed.values():
            uuids = frozenset(str(gpu["uuid"]) for gpu in record.environment.gpus or () if gpu.get("uuid"))
            other_name, other = known.setdefault(uuids or gpus_of(record), (name, record))
            if other_name != name and (uuids or gpus_of(record)):
                yield f"in {other_name} and in {name}, on the same GPUs", other, record


def _hosts_apart(material: Material) -> Iterator[str]:
    for where, *pair in _same_gpus(material):
        one, other = (record.environment.host or {} for record in pair)
        for key in _HOST:
            if None not in (one.get(key), other.get(key)) and one[key] != other[key]:
                yield f"host.{key} is {one[key]} and {other[key]}, {where}"


def variables(material: Material) -> Iterator[Point]:
    """The variables that were kept; the worker looks for secrets."""
    for environment in material.environments:
        kept = environment.get("variables")
        if isinstance(kept, dict) and isinstance(kept.get("allowed"), dict):
            withheld = kept.get("withheld", "?")
            says = f"{counted(len(kept['allowed']), 'variable')} kept by the allow-list, {withheld} not"
            yield Point(Outcome.CAPTURED, says)
        else:
            yield Point(Outcome.NOT_CAPTURED, "variables: the record holds none, and not how many there were")
    yield from contradicted(_variables_apart(material))


def _variables_apart(material: Material) -> Iterator[str]:
    for where, *pair in _same_gpus(material):
        ours, theirs = ((record.environment.variables or {}).get("allowed") for record in pair)
        if not isinstance(ours, dict) or not isinstance(theirs, dict):
            continue
        for key in dict.fromkeys([*ours, *theirs]):
            if ours.get(key) != theirs.get(key) and not _OF_A_LAUNCH.match(key):
                yield f"{key} is {ours.get(key, 'not set')} and {theirs.get(key, 'not set')}, {where}"


def presence(missing: Sequence[str], total: int, what: str) -> Iterator[Point]:
    """Yield CAPTURED for what is there, NOT CAPTURED for what is missing; what has a %s for how many records."""
    if total - len(missing):
        yield Point(Outcome.CAPTURED, what % counted(total - len(missing), "record"))
    if missing:
        yield Point(Outcome.NOT_CAPTURED, f"{what % counted(len(missing), 'record')}: {listed(missing)}")


def captured(material: Material, wanted: Mapping[str, str]) -> Iterator[Point]:
    """Yield for every environment what it has of the wanted, by their dotted paths, and what it lacks, with the
    reason."""
    for environment in material.environments:
        there = [name for name, path in wanted.items() if values_at(environment, path)]
        lacking = [(name, why_missing(environment, path)) for name, path in wanted.items() if name not in there]
        if there:
            yield Point(Outcome.CAPTURED, ", ".join(there))
        if lacking:
            yield Point(Outcome.NOT_CAPTURED, ", ".join(f"{name} ({why})" if why else name for name, why in lacking))


def why_missing(environment: Mapping[str, Any], path: str) -> str:
    """Return the reason that the capture gives for a gap, "" if it gives none."""
    named = environment.get("not_captured")
    reasons = named if isinstance(named, dict) else {}
    parts = path.split(".")
    for name in (path, parts[-1], parts[0], "_".join(parts)):
        if name in reasons:
            return str(reasons[name])
    problem = environment.get("problem")
    return problem if isinstance(problem, str) else ""
