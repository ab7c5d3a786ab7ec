"""The timeline of launches as a trace file, in the JSON form of Chrome's trace viewer, which Perfetto opens.

Processes are ranks, threads are blocks, slices are steps of the warp of a block that took most of them; an arrow leads
from the store or the last arrival that a step waited for to the step. The critical path is a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simulator.clock.profile import LaunchProfile
from simulator.clock.text import does

GAP_US = 1.0
"""Between launches."""
_PATH = "critical path"


def trace_of(profiles: Iterable[LaunchProfile]) -> dict[str, Any]:
    """Return a trace of launches one after another, for json.dump. Times are microseconds of the model.

    The timeline of the blocks is there if the launches were simulated with keeps_spans; the critical path always is.
    """
    events: list[dict[str, Any]] = []
    names: dict[tuple[int, int], str] = {}
    start = 0.0
    profiles = list(profiles)
    path_pid = max((max(one.ranks) for one in profiles), default=0) + 1
    for one in profiles:
        flow = len(events)
        for span in one.spans:
            names[span.rank, span.block] = f"block {span.block}"
            args: dict[str, Any] = {"warp": span.warp, "PTX line": span.line, "instruction": span.text}
            at = {"pid": span.rank, "tid": span.block}
            events.append(_slice(span.kind, at, start + span.from_us, span.to_us - span.from_us, args))
            if span.awaited is None or span.stored_us is None:
                continue
            rank, block, warp, line = span.awaited
            if (rank, block, warp) == (span.rank, span.block, span.warp):
                continue  # it came last itself
            flow += 1
            args["waits for"] = f"rank {rank}, block {block}, warp {warp}, PTX line {line}"
            there = {"pid": rank, "tid": block}
            names.setdefault((rank, block), f"block {block}")
            if "hop" in span.kind:
                events.append(_slice("store", there, start + span.stored_us, 0.0, {"warp": warp, "PTX line": line}))
            arrow = {"name": "waits", "cat": "waits", "id": flow}
            events.append({"ph": "s", **arrow, **there, "ts": start + span.stored_us})
            events.append({"ph": "f", "bp": "e", **arrow, **at, "ts": start + span.to_us})
        events += _path_events(one, start, path_pid)
        start += max(one.ends_us) + GAP_US
    return {"displayTimeUnit": "ns", "traceEvents": [*_named(names), *events]}


def _slice(name: str, at: dict[str, int], start_us: float, size_us: float, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": "step", **at, "ts": start_us, "dur": size_us, "args": args}


def _path_events(one: LaunchProfile, start: float, pid: int) -> list[dict[str, Any]]:
    """The critical path as the slices of one thread, in a process behind those of the ranks of all launches."""
    at = {"pid": pid, "tid": 0}
    found: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": at["pid"], "args": {"name": _PATH}}]
    for step in one.path.segments:
        args = {"who": f"rank {step.rank}, block {step.block}, warp {step.warp}", "what": does(step)}
        args |= {"PTX line": str(step.line), "source": step.source, "instruction": step.text}
        found.append(_slice(step.kind, at, start + step.from_us, step.to_us - step.from_us, args))
    return found


def _named(names: dict[tuple[int, int], str]) -> list[dict[str, Any]]:
    """The names of processes and threads."""
    ranks = sorted({rank for rank, _ in names})
    found = [{"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}} for rank in ranks]
    return found + [
        {"ph": "M", "name": "thread_name", "pid": rank, "tid": block, "args": {"name": name}}
        for (rank, block), name in sorted(names.items())
    ]
