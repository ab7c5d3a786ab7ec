"""What runs of MLflow say of records: metrics, parameters, tags, outcomes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cases.documents import encoded
from cases.dtypes import SIGNIFICAND_BITS
from cases.finding import counts_of
from cases.record.record import Check, Record, Status
from cases.record.timing import Timing
from reports.record.leaves import leaves

WORST_FIRST = (Status.FAILED, Status.DEADLOCK, Status.TIMEOUT, Status.WRONG, Status.REFUSED, Status.PASSED)
INCOMPLETE = "INCOMPLETE"
"""The status tag where cases that were asked for did not run."""


def series_of(record: Record) -> str:
    """The series of a record, "<job>/<op>/<algorithm>"; of what a table chose at each size "<job>/<op>/best". Of a job
    in both placements what ran in place is a series of its own: "<job>/<op>/<algorithm>/in_place"."""
    case = record.case
    algorithm = record.request.chosen_by or case.algorithm
    return f"{record.request.job}/{case.op}/{algorithm}{'/in_place' if is_second(record) else ''}"


def missing_of(record: Record, missing: Iterable[tuple[int, str]]) -> int:
    """How many of the missing cases, as pairs of job and id, belong to the series of a record."""
    job, beginning = record.request.job, f"{record.case.op}-{record.case.algorithm}-"
    part = f"-{record.case.placement}-" if in_both(record) else "-"
    return sum(number == job and case.startswith(beginning) and part in case for number, case in missing)


def in_both(record: Record) -> bool:
    """Whether the record's job was asked for in both placements."""
    return (record.request.configuration or {}).get("placement") == "both"


def is_second(record: Record) -> bool:
    """Whether a record is one in place of a job that was asked for in both placements."""
    return in_both(record) and record.case.placement == "in_place"


def worst(records: Iterable[Record]) -> Status:
    """The status that speaks for several records; PASSED for none."""
    found = {record.status for record in records}
    return next((status for status in WORST_FIRST if status in found), Status.PASSED)


def run_status(records: Sequence[Record], cases_not_run: int = 0) -> str:
    """MLflow's status: KILLED when cases did not run, FINISHED when all passed or were refused, FAILED else."""
    if cases_not_run:
        return "KILLED"
    return "FINISHED" if worst(records) in (Status.PASSED, Status.REFUSED) else "FAILED"


def status_tag(records: Sequence[Record], cases_not_run: int = 0) -> str:
    """The outcome in a word: the worst status, or INCOMPLETE when cases, or all, did not run."""
    return INCOMPLETE if cases_not_run or not records else str(worst(records))


def metrics_of(record: Record) -> dict[str, float]:
    """The numbers of a record, as curves over bytes. What is not finite stays in the record: MLflow would change it.

    MLflow's charts make a section of what stands before the slash, and put these in alphabetical order: bandwidth,
    errors, latency, findings of the race checker, and last what the simulator counted.
    """
    found: dict[str, float] = {}
    if record.check is not None:
        found |= _errors(record.check, record.case.dtype)
    if record.findings is not None:
        found |= {f"races/{severity}": count for severity, count in counts_of(record.findings).items()}
    if record.timing is not None:
        found |= _timing_metrics(record.timing, record.case.size_bytes)
        if record.case.flops:
            found["bandwidth/tflops"] = record.case.flops / record.timing.median_us / 1e6
    counters = {key: value for key, value in record.counters.items() if key not in ("of", "launches")}
    links = counters.pop("links", None)
    if links:  # one curve for them: with 72 ranks there are 5,112
        counters["link_bytes_busiest"] = max(links.values())
    found |= {f"simulator/{name}": value for name, value in _numbers(counters)}
    return {key: float(value) for key, value in found.items() if math.isfinite(value)}


def _errors(check: Check, dtype: str) -> dict[str, float]:
    """Relative errors are in units of u, the dtype's unit roundoff, of the results' root mean square."""
    # Not bound_used: it is 1 for every result that is rounded correctly, and would be read as an error.
    found: dict[str, float] = {
        "errors/wrong": check.wrong,
        "errors/max_ulp_error": check.max_ulp_error,
        "errors/rms_ulp_error": check.rms_ulp_error,
        "errors/max_absolute_error": check.max_absolute_error,
    }
    if dtype in SIGNIFICAND_BITS:
        for name in ("max_relative_error", "rms_relative_error"):
            if (value := getattr(check, name)) is not None:
                found[f"errors/{name}"] = value * 2.0 ** SIGNIFICAND_BITS[dtype]
    return found


def _timing_metrics(timing: Timing, size_bytes: int) -> dict[str, float]:
    """Times in us (time_us is the median); bandwidths in GB/s, if it is known what is moved; and the share of the
    measured limit where there is one."""
    found = {
        "latency/time_us": timing.median_us,
        "latency/time_us_min": timing.min_us,
        "latency/time_us_p95": timing.p95_us,
        "latency/time_us_p99": timing.p99_us,
        "latency/time_us_max": timing.max_us,
    }
    if not timing.has_bandwidth:
        return found
    found |= {
        "bandwidth/algbw_gbps": timing.algbw_gbps(size_bytes),
        "bandwidth/busbw_gbps": timing.busbw_gbps(size_bytes),
    }
    share = timing.of_limit(size_bytes)
    return found if share is None else found | {"bandwidth/of_limit": share}


def _numbers(counters: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Counters by name, nested ones as a_b; in letters that MLflow takes."""
    for path, value in leaves(counters):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield "_".join(re.sub(r"\W+", "_", str(key)).strip("_") for key in path), value


def command_metrics(records: Sequence[Record], cases_not_run: int) -> dict[str, float]:
    """How many cases of a command ended how."""
    counts = {f"cases/{status.lower()}": sum(one.status is status for one in records) for status in Status}
    ran = len(records)
    return {"cases/run": ran, "cases/not_run": cases_not_run, "cases/requested": ran + cases_not_run, **counts}


def parameters_of(record: Record) -> dict[str, Any]:
    """What a series was run with."""
    parameters = {key: value for key, value in encoded(record.case).items() if key != "size_bytes"}
    if record.fabric is not None:
        parameters |= {"fabric": record.fabric.name, "arch": record.fabric.arch}
        parameters |= {f"fabric.{key}": value for key, value in record.fabric.settings.items()}
        if isinstance(gpu := record.fabric.settings.get("gpu"), dict):
            parameters["fabric.gpu"] = gpu.get("name")
    configuration = record.request.configuration or {}
    if "sizes" in configuration:
        parameters["sizes"] = _sizes(configuration["sizes"])
    if isinstance(asked := configuration.get("timing"), dict) and record.timing is not None:
        parameters |= {f"timing.{key}": value for key, value in asked.items()}
    return parameters | {key: configuration[key] for key in ("launches", "deadline_s") if key in configuration}


def _sizes(sizes: Any) -> str:
    """As they were asked for, not as they were run: an interrupt does not change them."""
    if isinstance(sizes, dict) and sizes.get("list"):
        sizes = sizes["list"]
    if isinstance(sizes, dict):
        return " ".join(f"{key}={value}" for key, value in sizes.items() if value not in (None, []))
    return " ".join(map(str, sizes)) if isinstance(sizes, (list, tuple)) else str(sizes)


def series_tags(records: Sequence[Record], cases_not_run: int = 0) -> dict[str, str]:
    """The outcome of a series, which code ran, what was measured."""
    status = worst(records)
    passed = sum(record.status is Status.PASSED for record in records)
    tags = {
        "status": status_tag(records, cases_not_run),
        "passed": f"{passed}/{len(records) + cases_not_run}",
        "races": _races(records),
        **_what_was_measured(records),
        **origin_tags(records),
    }
    reason = next((record.reason for record in records if record.status is status and record.reason), "")
    if reason:
        tags["reason"] = reason
    kernels = [record.kernel for record in records if record.kernel is not None]
    for name in ("ptx_digest", "code_digest", "cubin_digest", "source_digest"):
        if digests := sorted({getattr(kernel, name) for kernel in kernels} - {"", None}):
            tags[name] = " ".join(digests)
    return tags


def _races(records: Sequence[Record]) -> str:
    """Whether the cases that ran were checked for races."""
    ran = [record for record in records if record.status is not Status.REFUSED]
    checked = sum(record.findings is not None for record in ran)
    return "not checked" if not checked else "checked" if checked == len(ran) else f"checked in {checked} of {len(ran)}"


def _what_was_measured(records: Sequence[Record]) -> dict[str, str]:
    """How a series' figures came about: whose code, what a sample spans, what counters add up."""
    tags: dict[str, str] = {}
    if any(record.counters for record in records):
        tags["counters"] = "sums over all ranks and all launches"
    if libraries := sorted({record.library for record in records} - {""}):
        tags["library"] = ", ".join(libraries)
    timings = [record.timing for record in records if record.timing is not None]
    for name in ("mode", "window", "l2"):
        if values := sorted({str(getattr(timing, name)) for timing in timings}):
            tags[name] = ", ".join(values)
    return tags


def origin_tags(records: Sequence[Record]) -> dict[str, str]:
    """What the records say about where they come from: schema, fabric, user, commit."""
    if not records:
        return {}
    tags = {"record_schema": str(records[0].schema)}
    fabric = next((record.fabric for record in records if record.fabric is not None), None)
    if fabric is not None:
        tags |= {"fabric": fabric.name, "simulated": str(fabric.simulated).lower()}
    host = records[0].environment.host
    if host and host.get("user"):
        tags["mlflow.user"] = str(host["user"])
    git = records[0].environment.git
    if git and git.get("commit"):
        tags |= {"mlflow.source.git.commit": str(git["commit"]), "git_dirty": str(git.get("dirty", "")).lower()}
    return tags
