"""Items "software", "machine" and "variables": where the records were made.

Worlds are compared with each other: the software that a case ran on, and the machine and the variables of worlds on the
same GPUs. The code must be one that the type of GPU can run. All else of an environment is the records' word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cases.documents import encoded
from cases.record.record import Record
from reports.table.text import counted
from symlab.evidence.audit.gpu_models import known_models, model_of
from symlab.evidence.audit.items import Outcome, Point, held, listed
from symlab.evidence.audit.material import Material, values_at
from symlab.evidence.audit.statistics import world_of

SOFTWARE = ("python.version", "torch", "packages", "cuda_driver", "gpus.driver")
"""What must be the same in all worlds of a case, or figures over them mean nothing."""

_HOST = ("cpu_model", "kernel", "machine", "cores")
"""What one machine has in all worlds. Not its name: each container may have one of its own."""

_OF_A_LAUNCH = re.compile(r"CUDA_VISIBLE_DEVICES$|SLURM_|TORCHELASTIC_|(LOCAL_|GROUP_)?RANK$|.*(PORT|RUN_ID|JOB_ID)$")
"""Variables that differ between any two launches."""


def software(material: Material) -> Iterator[Point]:
    """Python, packages, drivers and libraries, the same in all worlds of a case, and in all of a world."""
    known = {id(one.environment): _software_of(encoded(one.environment)) for one in material.records}
    odd: list[str] = []
    compared = 0
    for name, members in (*material.by_case.items(), *material.worlds.items()):
        found = {id(one.environment): known[id(one.environment)] for one in members}
        parts = {part: {repr(one[part]): one[part] for one in found.values() if part in one} for part in SOFTWARE}
        odd += [f"{name}: {part} is {_apart(*values.values())}" for part, values in parts.items() if len(values) > 1]
        if name in material.by_case:
            compared += len({world_of(one) for one in members if known[id(one.environment)]}) > 1
            libraries = dict.fromkeys(one.library for one in members)
            odd += [f"{name}: {' and '.join(libraries)}"] if len(libraries) > 1 else []
    yield from held(odd, f"{counted(compared, 'case')}: the same software in all worlds" if compared else "")
    if not odd and not compared:
        says = f"of {counted(len(material.worlds), 'world')} no two have a case in common and say what it ran on"
        yield Point(Outcome.DOES_NOT_APPLY if len(material.worlds) < 2 else Outcome.NOT_COMPARABLE, says)


def _software_of(environment: Mapping[str, Any]) -> dict[str, Any]:
    return {part: values for part in SOFTWARE if (values := values_at(environment, part))}


def _apart(one: Any, other: Any, *_: Any) -> str:
    """Two values in words; of two dictionaries what is not the same."""
    if isinstance(one[0], dict) and isinstance(other[0], dict):
        keys = [key for key in {**one[0], **other[0]} if one[0].get(key) != other[0].get(key)]
        return listed(f"{key} {one[0].get(key)} and {other[0].get(key)}" for key in keys)
    return f"{listed(map(str, one))} and {listed(map(str, other))}"


def machine(material: Material) -> Iterator[Point]:
    """GPUs, whose type must be able to run the code, and the host of worlds on the same ones."""
    of_gpus = [text for record in material.on_gpus for text in (*_types(record), *_gpus_apart(record))]
    count = counted(len(material.on_gpus), "record")
    good = f"GPUs and hosts of {count} contradict nothing" if material.on_gpus else ""
    yield from held((*of_gpus, *_hosts_apart(material)), good)


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
    """The variables of worlds on the same GPUs; the worker looks for secrets."""
    yield from held(_variables_apart(material))
    if any(not isinstance((one.get("variables") or {}).get("allowed"), dict) for one in material.environments):
        yield Point(Outcome.NOT_CAPTURED, "variables: a record holds none, and not how many there were")


def _variables_apart(material: Material) -> Iterator[str]:
    for where, *pair in _same_gpus(material):
        ours, theirs = ((record.environment.variables or {}).get("allowed") for record in pair)
        if not isinstance(ours, dict) or not isinstance(theirs, dict):
            continue
        for key in dict.fromkeys([*ours, *theirs]):
            if ours.get(key) != theirs.get(key) and not _OF_A_LAUNCH.match(key):
                yield f"{key} is {ours.get(key, 'not set')} and {theirs.get(key, 'not set')}, {where}"
