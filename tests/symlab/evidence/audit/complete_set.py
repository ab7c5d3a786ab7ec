"""A set of invented records in which nothing is missing, and its folder on disk: tests take something away."""

import copy
import dataclasses
import hashlib
import json
from typing import Any
from unittest.mock import patch

from cases.code_digest import code_digest
from cases.record.record import KernelInfo
from reports.record.bundle import read
from reports.record.seal import seal
from symlab.evidence.audit import worker
from symlab.evidence.audit.checklist import check
from symlab.evidence.audit.items import Ground, Outcome, Point
from symlab.evidence.audit.level import Recomputed
from symlab.evidence.audit.material import Answer, Material
from symlab.evidence.audit.worker import Rerun
from tests.golden import same_text
from tests.reports.synthetic import KIB
from tests.symlab.evidence.audit.invented_records import digest, one

PTX = "// an invented kernel\n.visible .entry entry_0(\n)\n"

UUIDS = tuple(f"GPU-{rank}" for rank in range(4))

STATE = {"sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 40, "power_w": 130.5, "throttle": ["idle"]}

ENVIRONMENT: dict[str, Any] = {
    "git": {"commit": "0" * 40, "branch": "main", "dirty": False, "changed_files": 0},
    "sources": {"kernels": "sha256:" + "7" * 64},
    "python": {"version": "3.12.3"},
    "torch": {"version": "2.13.0", "cuda": "13.0"},
    "packages": {
        "torch": "2.13.0",
        "nvidia-nccl-cu13": "2.28.9",
        "nvidia-nvshmem-cu13": "3.8.0",
        "nvidia-cutlass-dsl": "4.8.1",
    },
    "cuda_driver": "13.0",
    "host": {
        "name": "vm",
        "user": "somebody",
        "kernel": "6.1",
        "cpu_model": "Invented",
        "numa_nodes": {"node0": "0-63"},
    },
    "gpus": [
        {
            "model": "Invented GPU",
            "uuid": uuid,
            "driver": "580",
            "mig": False,
            "nvlink": {"count": 18},
            "fabric": {"state": "completed"},
            "other_processes": 0,
        }
        for uuid in UUIDS
    ],
    "launch": {"launcher": "none"},
    "variables": {"allowed": {"NCCL_NVLS_ENABLE": "0"}, "withheld": 3},
    "not_captured": {},
}

CONFIGURATION: dict[str, Any] = {
    "op": "all_reduce",
    "accumulator": "float32",
    "timing": {"mode": "graph", "window": "kernel", "l2": "rotate", "samples": 3, "calls": None},
}


def kernel(text=PTX):
    source = f"sha256:{digest('source')}"
    ptx, cubin = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", f"sha256:{digest('cubin')}"
    return KernelInfo(
        *("all_reduce/one_shot", "entry_0", "sm_90a", ptx, cubin, source, "invented-compiler 1.0", 8, 256),
        code_digest=code_digest(text),
    )


def records(worlds=4):
    """Worlds of one size, our kernel and a baseline, timed in turns."""
    found = []
    for world in range(worlds):
        for algorithm, other, us in (("one_shot", "nccl", 10.123), ("nccl", "one_shot", 20.127)):
            request = {"command": f"command{world}", "command_line": ["python", "-m", "runner", "+exp=x"]}
            request |= {"job": 0, "jobs": 1, "overrides": ["+exp=x"], "configuration": CONFIGURATION}
            states = [STATE | {"uuid": uuid} for uuid in UUIDS]
            devices = tuple({"before": state, "after": state} for state in states)
            made: dict[str, Any] = {"kernel": kernel()} if algorithm == "one_shot" else {"library": "NCCL 2.28.9"}
            made |= {"timing": {"interleaved_with": (other,), "devices": devices}, "request": request}
            made |= {"environment": copy.deepcopy(ENVIRONMENT), "us": us + 0.0131 * world}
            found.append(one(algorithm, KIB, world=world, **made))
    return found


RERUN = Recomputed(1, 2, kernels=("all_reduce/one_shot",))


def answer(level=RERUN, problem="", **points):
    """What the worker says where nothing is wrong, but for these items."""
    names = ("configuration", "kernels", "variables", "data", "cases", "replay")
    good = {name: [Point(Outcome.VERIFIED, f"{name} recomputed", Ground.RECOMPUTED, (8, 8))] for name in names}
    return Answer({} if problem else {**good, **points}, Recomputed() if problem else level, problem)


def kept(folder, members=None):
    """The set as commands leave it: a folder each, with command.json, configuration.yaml, PTX and a manifest."""
    for name, some in Material(tuple(members or records())).by_command.items():
        here, asked = folder / name, some[0].request
        (here / "ptx").mkdir(parents=True)
        (here / "ptx" / f"{hashlib.sha256(PTX.encode()).hexdigest()}.ptx").write_text(PTX, encoding="utf-8")
        for record in some:
            (here / f"{record.id}.json").write_text(record.to_json(), encoding="utf-8")
        (here / "configuration.yaml").write_text(json.dumps(asked.configuration), encoding="utf-8")
        job = {"number": 0, "overrides": list(asked.overrides), "cases": [record.id for record in some], "differs": {}}
        document = {
            "schema": 1,
            "command": name,
            "command_line": list(asked.command_line),
            "working_folder": "work",
            "started": some[0].started,
            "plan": {"experiment": asked.experiment, "fabric": "nvshmem", "configuration": asked.configuration},
            "jobs": [job],
            "cases_requested": len(some),
            "ended": some[-1].ended,
            "counts": {"PASSED": len(some)},
            "exit_code": 0,
            "outcome": "complete",
            "why": "",
            "cases_not_run": [],
        }
        (here / "command.json").write_text(json.dumps(document), encoding="utf-8")
        seal(here)
    return folder


def with_command(place, **changes):
    """The folder with something else in the first command's command.json; None takes it out."""
    path = place / "command0" / "command.json"
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}), encoding="utf-8")
    return place


def audited(members=None, place=None, said=None):
    """The checklist of a set (or of what a folder holds), with a worker that says what is expected of it."""
    found = members if members is not None else read([place]) if place else records()
    with patch.object(worker, "ask", lambda *_: said or answer()):
        return check(found, [place] if place else [])


def asked(records, places=(), **wanted):
    """What the real worker says, a line a point, in a process of its own; by default no case runs again."""
    found = worker.ask(tuple(places), tuple(records), worker.Wanted(**{"rerun": Rerun(0), **wanted}))
    assert found.problem == ""
    points = ((name, point) for name, some in found.points.items() for point in some)
    return "\n".join(f"{name} {point.outcome}: {point.evidence}" for name, point in points)


def item(audit, name):
    return next(one for one in audit.items if one.name == name)


def outcomes(audit, name):
    return {point.outcome for point in item(audit, name).points}


def evidence(audit, name, outcome):
    """The evidence of all points of an item with this outcome."""
    return "\n".join(point.evidence for point in item(audit, name).points if point.outcome is outcome)


def tells(audit, name):
    """Expect what an item has more than that of the same set unchanged, by the text that is kept of it."""
    honest = [(one.outcome, one.evidence) for one in item(audited(), name).points]
    more = [one for one in item(audit, name).points if (one.outcome, one.evidence) not in honest]
    assert (name in audit.level.findings) == any(one.outcome is Outcome.FINDING for one in more), audit.verdict
    hidden = (r"[0-9a-f]{12}\.\.", r"(?<= )[\d,]+(?= h after this audit)")
    same_text("\n".join(f"{one.outcome}: {one.evidence}" for one in more) or "as unchanged", *hidden)


def changed(record, **changes):
    return dataclasses.replace(record, **changes)


def with_environment(members, **changes):
    return [changed(record, environment=dataclasses.replace(record.environment, **changes)) for record in members]


def without(members, *names):
    """The records without these parts of their environment."""
    return with_environment(members, **dict.fromkeys(names))


def with_timing(record, **changes):
    return changed(record, timing=dataclasses.replace(record.timing, **changes))


def with_request(record, **changes):
    return changed(record, request=dataclasses.replace(record.request, **changes))
