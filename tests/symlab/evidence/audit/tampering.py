"""Kinds of tampering: what a liar may change in a set before it is sealed again, and the item that finds it.

Three sets: `measured` is invented, four worlds on four GPUs in which nothing is missing and nothing contradicts; `run`
is what commands leave that ran in the simulator, `stressed` what one leaves that ran under stress. A kind changes files
of one of them. found is the name of the item that has a FINDING then; LOAD if the set can't be read any more; else what
the page says of it, which an audit can't find: see UNFINDABLE.
"""

import copy
import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from cases.record.record import load
from reports.record.seal import seal
from tests.reports.synthetic import KIB
from tests.symlab.evidence.audit.complete_set import CONFIGURATION, ENVIRONMENT, STATE, UUIDS, kept, kernel
from tests.symlab.evidence.audit.invented_records import one

LOAD = "load"

CLOCK = "times as a clock could have given them"
GONE = "a world or a case that is gone without a trace"
TIMED_HOW = "what a record says of how calls were timed"
MACHINE_SAYS = "what a record says of its machine, software and GPUs"
TREE = "a commit that git does not have, the state of a tree, a kernel's sources"
OTHER_WORK = "what GPUs, or other versions of the model, did"
OF_WORKERS = "the workers of a command"
COMMAND_FILES = "what else command.json, configuration.yaml and resolved names repeat"
TEXTS = "texts for people, and files to which no record refers"

UNFINDABLE = (CLOCK, GONE, TIMED_HOW, MACHINE_SAYS, TREE, OTHER_WORK, OF_WORKERS, COMMAND_FILES, TEXTS)
"""What no audit finds: the lines of the page's table."""

Change = Callable[[Path], None]

SAMPLES = 12
OVERRIDES = ["+exp=x", "seed=0"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tampering: name, the set that it changes, the change, where it is found. by_rerun: it is found by
    running cases again or comparing them with the reference, and by nothing else."""

    name: str
    of: str
    change: Change
    found: str
    by_rerun: bool = False


# The invented set.


def name_of(world):
    return f"20260101T0{world}0000Z-all_reduce-0000000{world}"


def environment():
    found = copy.deepcopy(ENVIRONMENT)
    found["git"] |= {"untracked_files": 0, "changed": [], "untracked": [], "diff_digest": ""}
    for gpu in found["gpus"]:
        gpu |= {"model": "NVIDIA H200", "nvlink": {"count": 18, "active": 18}}
    device = {"name": "NVIDIA H200", "capability": "9.0", "multiprocessors": 132, "l2_bytes": 62914560}
    found["world"] = {"ranks": [{"rank": at, "device": device | {"uuid": uuid}} for at, uuid in enumerate(UUIDS)]}
    found["launch"] |= {"nodes": 1}
    return found


def configuration():
    timing = CONFIGURATION["timing"] | {"warmup": 3, "samples": SAMPLES}
    return {**CONFIGURATION, "seed": 0, "launches": 2, "check": {"results": True, "races": False}, "timing": timing}


def members():
    """Our kernel and a baseline in four worlds, with samples of their own."""
    source = random.Random(0)
    found = []
    for world in range(4):
        for algorithm, other, us in (("one_shot", "nccl", 10.0), ("nccl", "one_shot", 20.0)):
            rows = [[us * source.uniform(1, 1.05) for _ in range(SAMPLES)] for _ in UUIDS]
            state = STATE | {"other_processes": 0}
            timing = {
                "samples_us": rows,
                "interleaved_with": (other,),
                "l2_bytes": 62914560,
                "devices": tuple({"before": state | {"uuid": uuid}, "after": state | {"uuid": uuid}} for uuid in UUIDS),
            }
            request = {
                "command": name_of(world),
                "command_line": ["python", "-m", "symlab", "run", *OVERRIDES],
                "job": 0,
                "jobs": 1,
                "overrides": OVERRIDES,
                "configuration": configuration(),
                "resolved": {"dtype": "bfloat16", "accumulator": "float32", "reduction": "sum"},
            }
            made = {"kernel": kernel()} if algorithm == "one_shot" else {}
            made |= {"request": request, "environment": environment(), "timing": timing, "library": ""}
            made |= {} if algorithm == "one_shot" else {"library": "NCCL 2.28.9"}
            record = one(algorithm, KIB, world=world, us=us, **made)
            fabric = replace(record.fabric, description="NVIDIA H200, libnvshmem 3.8.0")
            found.append(replace(record, fabric=fabric))
    return found


def make_measured(folder):
    """Write the invented set as commands leave it."""
    kept(folder, members())


def reseal(folder):
    """Seal every command's folder by the project's own seal."""
    for path in sorted(folder.rglob("command.json")):
        if path.is_file():
            seal(path.parent)


# How files are changed.


def record_paths(folder):
    return sorted(
        path for path in folder.rglob("*.json") if path.name not in ("command.json",) and path.parent.name != "shared"
    )


def edit(path, change):
    """Change a record's document, whose environment and request are in full then. What no record refers to any more is
    removed: who changes records on purpose leaves nothing behind."""
    before = path.read_text(encoding="utf-8")
    record = load(path)
    document = json.loads(record.to_json())
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    others = "".join(one.read_text(encoding="utf-8") for one in path.parent.glob("*.json"))
    for digest in re.findall(r'"shared": "sha256:([0-9a-f]{64})"', before):
        if digest not in others:
            (path.parent / "shared" / f"{digest}.json").unlink()


def every(change, text=""):
    """Change the documents of all records whose path has a text."""

    def changed(folder):
        for path in record_paths(folder):
            if text in str(path):
                edit(path, change)

    return changed


def first(change, text="one_shot"):
    """Change the document of the first record whose path has a text."""
    return lambda folder: edit(next(path for path in record_paths(folder) if text in path.name), change)


def command(change):
    """Change the first command.json."""

    def changed(folder):
        path = sorted(folder.rglob("command.json"))[0]
        document = json.loads(path.read_text(encoding="utf-8"))
        change(document)
        path.write_text(json.dumps(document), encoding="utf-8")

    return changed


def put(path, value):
    """Set the value at a dotted path; with a function, what it makes of the value that is there."""

    def change(document):
        *ways, key = path.split(".")
        inner = document
        for way in ways:
            inner = inner[int(way)] if isinstance(inner, list) else inner[way]
        at = int(key) if isinstance(inner, list) else key
        inner[at] = value(inner.get(key) if isinstance(inner, dict) else inner[at]) if callable(value) else value

    return change


def both(*changes):
    def changed(folder):
        for change in changes:
            change(folder)

    return changed


def scaled(factor):
    return lambda rows: [[value * factor for value in row] for row in rows]


def world(folder, number):
    return folder / name_of(number)


def copy_world(folder, change=lambda document: None):
    """Make a fifth world of the first, with its name and its times of its own."""
    text = name_of(4)
    shutil.copytree(world(folder, 0), folder / text)
    for path in (folder / text).rglob("*.json"):
        there = path.read_text(encoding="utf-8").replace(name_of(0), text)
        path.write_text(there.replace("2026-01-01T00:", "2026-01-01T04:"), encoding="utf-8")
        if path.name != "command.json":
            edit(path, change)


def replace_in(pattern, old, new):
    """Replace a text in the first file with it."""

    def changed(folder):
        for path in sorted(folder.rglob(pattern)):
            text = path.read_text(encoding="utf-8")
            if old in text:
                path.write_text(text.replace(old, new), encoding="utf-8")
                return
        raise AssertionError(f"no {pattern} has {old}")

    return changed


def remove(pattern):
    return lambda folder: sorted(folder.rglob(pattern))[0].unlink()
