"""A set of invented records in which nothing is missing, and its folder on disk: tests take something away."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from cases.record.record import KernelInfo, Record
from reports.audit.checklist import Audit, check
from reports.audit.items import Item, Outcome
from reports.audit.ptx import code_digest
from reports.record.seal import seal
from tests.golden import same_text
from tests.reports.audit.invented_records import digest, one
from tests.reports.synthetic import KIB

PTX = "// an invented kernel\n.visible .entry entry_0(\n)\n"

UUIDS = tuple(f"GPU-{rank}" for rank in range(4))

STATE = {"sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 40, "power_w": 130.5, "throttle": ["idle"]}

ENVIRONMENT: dict[str, Any] = {
    "git": {"commit": "0" * 40, "branch": "main", "dirty": False, "changed_files": 0},
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


def kernel(text: str = PTX) -> KernelInfo:
    source = f"sha256:{digest('source')}"
    ptx, cubin = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", f"sha256:{digest('cubin')}"
    return KernelInfo(
        *("all_reduce/one_shot", "entry_0", "sm_90a", ptx, cubin, source, "invented-compiler 1.0", 8, 256),
        code_digest=code_digest(text),
    )


def records(worlds: int = 4) -> list[Record]:
    """Worlds of one size, our kernel and a baseline, timed in turns."""
    found = []
    for world in range(worlds):
        for algorithm, other, us in (("one_shot", "nccl", 10.123), ("nccl", "one_shot", 20.127)):
            request = {
                "command": f"command{world}",
                "command_line": ["python", "-m", "runner", "+exp=x"],
                "job": 0,
                "jobs": 1,
                "overrides": ["+exp=x"],
                "configuration": CONFIGURATION,
            }
            timing = {
                "interleaved_with": (other,),
                "devices": tuple({"before": STATE | {"uuid": uuid}, "after": STATE | {"uuid": uuid}} for uuid in UUIDS),
            }
            made: dict[str, Any] = {"kernel": kernel()} if algorithm == "one_shot" else {"library": "NCCL 2.28.9"}
            environment = copy.deepcopy(ENVIRONMENT)
            found.append(
                one(
                    algorithm,
                    KIB,
                    world=world,
                    us=us + 0.0131 * world,
                    timing=timing,
                    request=request,
                    environment=environment,
                    **made,
                )
            )
    return found


def answer(**changes: Any) -> dict[str, Any]:
    """What the worker says where nothing is wrong."""
    good = {
        "configurations": {"verified": 4, "different": [], "not_comparable": []},
        "cases": {"expected": 8, "missing": [], "unexpected": [], "not_comparable": []},
        "inputs": {"made": 32, "cases": 8, "different": [], "too_large": 0, "not_recorded": 0, "not_comparable": []},
        "sources": {
            **{part: [] for part in ("same_code", "changed", "older", "gone", "not_comparable")},
            "same": ["all_reduce/one_shot"],
        },
        "secrets": {"looked_at": 8, "found": []},
        "rerun": {
            "seed": 7,
            "of": 2,
            "kernels": ["all_reduce/one_shot"],
            "agree": [["the case of one_shot", "all_reduce/one_shot", "simulator"]],
            "different": [],
            "not_comparable": [],
            "stated": [["the case of nccl", "a library ran it, which needs GPUs"]],
            "code": {"agree": [["the case of one_shot", "all_reduce/one_shot"]], "different": [], "stated": []},
            "counters": {"agree": [], "different": [], "stated": []},
        },
    }
    return {part: {**values, **changes.get(part, {})} for part, values in good.items()}


def kept(folder: Path, members: list[Record] | None = None) -> Path:
    """The set as commands leave it: a folder each, with command.json, PTX and a manifest."""
    found: dict[str, list[Record]] = {}
    for record in members or records():
        found.setdefault(record.request.command, []).append(record)
    for name, some in found.items():
        here = folder / name
        (here / "ptx").mkdir(parents=True)
        (here / "ptx" / f"{hashlib.sha256(PTX.encode()).hexdigest()}.ptx").write_text(PTX, encoding="utf-8")
        for record in some:
            (here / f"{record.id}.json").write_text(record.to_json(), encoding="utf-8")
        document = {
            "schema": 1,
            "command": name,
            "command_line": list(some[0].request.command_line),
            "working_folder": "work",
            "started": some[0].started,
            "plan": {"experiment": "", "fabric": "nvshmem", "configuration": {}},
            "jobs": [{"number": 0, "overrides": ["+exp=x"], "cases": [record.id for record in some]}],
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


def audited(members: list[Record] | None = None, place: Path | None = None, **changes: Any) -> Audit:
    """The checklist of a set (or of what a folder holds), with a worker that says what is expected of it."""
    from reports.record.bundle import read

    found = members if members is not None else read([place]) if place else records()
    return check(found, [place] if place else [], ask=lambda *_: (answer(**changes), ""))


def item(audit: Audit, number: int) -> Item:
    return audit.items[number - 1]


def points(audit: Audit, number: int) -> list[tuple[Outcome, str]]:
    return [(point.outcome, point.evidence) for point in item(audit, number).points]


def outcomes(audit: Audit, number: int) -> set[Outcome]:
    return {outcome for outcome, _ in points(audit, number)}


def evidence(audit: Audit, number: int, outcome: Outcome) -> str:
    """The evidence of all points of an item with this outcome."""
    return "\n".join(text for found, text in points(audit, number) if found is outcome)


def tells(audit: Audit, number: int) -> None:
    """Expect the text that is kept of how an item differs from that of the same set unchanged."""
    honest, found = points(audited(), number), points(audit, number)
    more = [f"{outcome}: {text}" for outcome, text in found if (outcome, text) not in honest]
    less = [f"not {outcome}: {text}" for outcome, text in honest if (outcome, text) not in found]
    same_text("\n".join([*more, *less]) or "as unchanged", r"[0-9a-f]{12}\.\.")


def changed(record: Record, **changes: Any) -> Record:
    return dataclasses.replace(record, **changes)


def with_environment(members: list[Record], **changes: Any) -> list[Record]:
    return [changed(record, environment=dataclasses.replace(record.environment, **changes)) for record in members]


def without(members: list[Record], *names: str) -> list[Record]:
    """The records without these parts of their environment."""
    return with_environment(members, **dict.fromkeys(names))


def with_timing(record: Record, **changes: Any) -> Record:
    assert record.timing is not None
    return changed(record, timing=dataclasses.replace(record.timing, **changes))


def with_request(record: Record, **changes: Any) -> Record:
    return changed(record, request=dataclasses.replace(record.request, **changes))
