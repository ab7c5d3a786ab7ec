"""symlab predict --trace: the predicted timelines of cases, one after another, as a file that Perfetto opens.

A process for each rank, a thread for each block, slices for steps and arrows for waits (simulator/clock/trace.py); the
critical path of each case, and the cases themselves, are processes of their own behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from runner.predict.asking import Asked
from runner.predict.explaining import Explanation
from runner.predict.shown import Series
from runner.request_error import RequestError
from simulator.clock.trace import GAP_US, trace_of

CASES = "cases (predicted)"
SAID = (
    "predicted by a model, not measured; the timelines have the steps of warps alone and leave bandwidth out: the time "
    "that links and memory take for all bytes is among the terms of each case's predicted time"
)


def check_timed(asked: Sequence[Asked]) -> None:
    """RequestError for a type of GPU without floors: its steps have an order and no times."""
    for one in asked:
        if one.type.floors is None:
            raise RequestError(
                f"{one.type.name} has no floors, so that its steps have an order and no times (--trace), give a type "
                "that is calibrated, or --explain"
            )


def trace(found: Sequence[Series]) -> dict[str, Any]:
    """Return the trace of all predicted cases in the order of the jobs, for json.dump: microseconds of the model. The
    cases must have been explained with the timelines of their blocks."""
    told = [one for series in found for one in series.paths.values()]
    document = trace_of(one.profile for one in told)
    pid = max((max(one.profile.ranks) for one in told), default=0) + 2
    cases: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": CASES}}]
    start = 0.0
    for one in told:
        size_us = max(one.profile.ends_us)
        name = f"{one.title}, {one.case.world_size} ranks of {one.gpu}"
        at = {"ph": "X", "cat": "case", "pid": pid, "tid": 0, "ts": start, "dur": size_us}
        cases.append({"name": name, **at, "args": {"predicted": True, **_terms(one)}})
        start += size_us + GAP_US
    document["traceEvents"] += cases
    document["otherData"] = {"predicted": True, "said": SAID}
    return document


def _terms(one: Explanation) -> dict[str, float]:
    """What a case's predicted time is the sum of, and the time itself."""
    return {} if one.terms is None else {**asdict(one.terms), "time_us": one.terms.time_us}
