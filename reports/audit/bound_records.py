"""Each record against itself: its case against the figures of its check and of its timing, and its times.

The rules hold for whatever wrote the record: they follow from what the op moves, and from how symlab checks and times.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime

from cases.record.nccl_settings import contradiction
from cases.record.record import (
    CHECK_WAS_OFF,
    INTERRUPTED,
    TIMED_APART,
    TIMED_WITHOUT,
    WHOLE_SINCE,
    Check,
    Record,
    Status,
)
from cases.record.request import as_today
from cases.record.timing import L2State, Timing
from reports.audit.bound_counters import counted_apart
from reports.audit.bound_ops import checked_elements, op_of, slot_bytes
from reports.audit.contradiction import Contradiction
from reports.table.compare import LIBRARY, is_baseline

NO_STRESS = "none"

FEWEST_CALLS, MOST_CALLS = 4, 50
"""Calls of a sample if their number was not given; those of runner/timing/measure.py."""

CLOCKS_APART_S = 1.0
"""Maximum difference of a duration by the wall clock and by the monotonic one. The wall clock may be set meanwhile."""

CLOCKS_SET_APART_S = 3600.0
"""Maximum time by which the clock of the machine that recorded may be ahead of this one's."""

_CLOCK_SHARE = 0.01

_ROUNDING = 1e-9

_ABOUT_A_HANG = re.compile(TIMED_WITHOUT.format(r"\w+/[\w/@.=,:+-]+") + "|" + re.escape(TIMED_APART))
"""A reason after a hang."""

_LIBRARIES = {"nccl": "NCCL", "nvshmem": "NVSHMEM", "torch": "PyTorch", "flashinfer": "flashinfer", "sglang": "SGLang"}
"""How the name of a library with its version begins, by the beginning of the algorithm's name."""

KERNELS, DATA, METHOD, SAMPLES, COUNTS, COMMAND = 3, 9, 10, 11, 16, 17
"""Numbers of the items that these rules belong to."""


def contradictions(record: Record) -> Iterator[Contradiction]:
    """Yield what one record says twice and not alike."""
    for item, sentences in (
        (DATA, _check(record)),
        (METHOD, _method(record)),
        (SAMPLES, _samples(record)),
        (COMMAND, _times(record)),
        (KERNELS, _kernel(record)),
        (DATA, counted_apart(record)),
        (KERNELS, _without_code(record)),
        (DATA, _lacking(record)),
        (COUNTS, _reason(record)),
    ):
        for sentence in sentences:
            yield Contradiction(item, f"{record.id}: {sentence}")


def _check(record: Record) -> Iterator[str]:
    check, case = record.check, record.case
    asked = as_today(record.request.configuration or {})
    if check is None:
        wants = asked["check"].get("results") if isinstance(asked.get("check"), dict) else None
        if record.reason == CHECK_WAS_OFF and wants is True:
            yield f"the configuration asked for a check, and the record says '{CHECK_WAS_OFF}'"
        return
    if (each := checked_elements(case)) is not None and check.elements != each * check.launches:
        yield (
            f"{check.elements:,} elements were compared, {case.op} of {case.size_bytes} B on {case.world_size} ranks "
            f"gives {each * check.launches:,} in {check.launches} launches"
        )
    launches = launches_checked(record)
    if launches is not None and launches != check.launches:
        asked_for = "a case under stress has" if case.stress != NO_STRESS else "the configuration asked for"
        yield f"{check.launches} launches were compared, {asked_for} {launches}"
    if check.results is not None and check.results > case.world_size:
        yield f"{check.results} different results on {case.world_size} ranks"
    yield from _errors(check)
    yield from _moved(record)


def launches_checked(record: Record) -> int | None:
    """Return the number of launches that a check must be of; None if the record does not say.

    Under stress the check is of the case's first launch; outputs of all others become its faults.
    """
    if record.case.stress != NO_STRESS:
        return 1
    asked = record.request.configuration or {}
    launches = asked.get("launches")
    return launches if type(launches) is int and record.case.op in asked.get("op", "") else None


def _errors(check: Check) -> Iterator[str]:
    """What the errors of a check say of each other: a mean is at most the maximum, and bits that are equal have no
    error."""
    if check.rms_ulp_error > check.max_ulp_error * (1 + _ROUNDING):
        yield f"the mean error ({check.rms_ulp_error:g} ulp) is above the maximum ({check.max_ulp_error} ulp)"
    largest, mean = check.max_relative_error, check.rms_relative_error
    if largest is not None and mean is not None and mean > largest * (1 + _ROUNDING):
        yield f"the mean relative error ({mean:g}) is above the maximum ({largest:g})"
    is_known = largest is not None and math.isfinite(check.max_absolute_error) and check.method != "bound"
    if is_known and largest is not None and (largest > 0) != (check.max_absolute_error > 0):
        yield f"the maximum error is {check.max_absolute_error:g}, as a share it is {largest:g}"
    if check.method in ("bytes", "bitwise") and not check.wrong:
        errors = (check.max_ulp_error, check.rms_ulp_error, check.max_absolute_error)
        if any(error > 0 for error in errors):
            yield f"every bit is as it must be ({check.method}), and the maximum error is {check.max_ulp_error} ulp"
    if check.bound_value is not None and not check.wrong and check.max_absolute_error > check.bound_value:
        says = f"an error of {check.max_absolute_error:g} above the largest that the bound permits"
        yield f"{says} ({check.bound_value:g}), and no element is wrong"


def _moved(record: Record) -> Iterator[str]:
    """An output that is one rank's input has its digest."""
    op, check, case = op_of(record.case), record.check, record.case
    if op is None or op.source is None or check is None or check.input_digests is None:
        return
    for rank, row in enumerate(check.output_digests or ()):
        source = op.source(rank, case.world_size, case.root)
        if row and source < len(check.input_digests) and {*row} != {check.input_digests[source]}:
            yield f"{case.op} gives rank {rank} the input of rank {source}, and their digests differ"


def _method(record: Record) -> Iterator[str]:
    timing, case = record.timing, record.case
    op = op_of(case)
    if timing is None or op is None:
        return
    factor = op.bus_factor(case.world_size)
    if not math.isclose(timing.bus_factor, factor, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        yield f"bus factor {timing.bus_factor:g}, {case.op} on {case.world_size} ranks has {factor:g}"
    if (bytes_each := slot_bytes(case)) is not None and timing.slot_bytes != bytes_each:
        yield f"slots of {timing.slot_bytes} B, input and output of a rank have {bytes_each}"
    if timing.moved_bytes is not None:
        yield f"bandwidth of {timing.moved_bytes} declared bytes, {case.op} has its size, {case.size_bytes}"
    yield from _calls(record, timing)
    yield from _slots(timing)
    yield from _checked(record, timing)


def _calls(record: Record, timing: Timing) -> Iterator[str]:
    asked = (record.request.configuration or {}).get("timing")
    asked = asked if isinstance(asked, dict) else {}
    calls = timing.calls_per_sample
    if "calls" in asked and asked["calls"] is None and not FEWEST_CALLS <= calls <= MOST_CALLS:
        yield f"{calls} calls a sample, none were asked for, which gives {FEWEST_CALLS} to {MOST_CALLS}"
    warmup = asked.get("warmup")
    if type(warmup) is int and timing.warmup_calls != warmup * calls:
        yield f"{timing.warmup_calls} warm-up calls, asked were {warmup} samples of {calls} calls"


def _slots(timing: Timing) -> Iterator[str]:
    if timing.l2 == L2State.hot and timing.slots != 1:
        yield f"{timing.slots} slots, a hot L2 has one"
    if timing.l2 == L2State.rotate and timing.slots > timing.calls_per_sample:
        yield f"{timing.slots} slots, a sample has {timing.calls_per_sample} calls"
    if timing.l2_bytes and timing.slot_bytes and timing.l2 == L2State.rotate:
        most = max(1, -(-2 * timing.l2_bytes // timing.slot_bytes))
        if timing.slots > most:
            yield f"{timing.slots} slots, {most} are twice the L2 cache"


def _checked(record: Record, timing: Timing) -> Iterator[str]:
    each = checked_elements(record.case)
    if each is None:
        return
    each *= timing.slots
    if timing.checked_before != each:
        yield f"{timing.checked_before:,} elements were right before the samples, all slots have {each:,}"
    if timing.checked_after not in (each, 2 * each):
        yield f"{timing.checked_after:,} elements were right after the samples, all slots have {each:,}"


def _samples(record: Record) -> Iterator[str]:
    timing = record.timing
    if timing is None:
        return
    spent_s = sum(timing.per_iteration_us) * timing.calls_per_sample / 1e6
    if spent_s > record.duration_s * (1 + _CLOCK_SHARE) + CLOCKS_APART_S:
        yield f"the samples took {spent_s:.3g} s, the case {record.duration_s:.3g} s"
    rows = timing.samples_us
    if len(rows[0]) >= 10 and len(set(rows)) < len(rows):
        yield f"{len(rows) - len(set(rows))} ranks have the samples of another, to the last digit"


def _times(record: Record) -> Iterator[str]:
    started, ended = (datetime.fromisoformat(text) for text in (record.started, record.ended))
    wall_s = (ended - started).total_seconds()
    if (ahead_s := (ended - datetime.now(UTC)).total_seconds()) > CLOCKS_SET_APART_S:
        yield f"it ended {ended:%Y-%m-%d %H:%M} UTC, {ahead_s / 3600:,.0f} h after this audit"
    if wall_s < 0:
        yield f"it ended ({record.ended}) before it started ({record.started})"
    elif abs(wall_s - record.duration_s) > max(CLOCKS_APART_S, _CLOCK_SHARE * record.duration_s):
        yield f"it took {record.duration_s:.3g} s, from start to end are {wall_s:.3g} s"


def _kernel(record: Record) -> Iterator[str]:
    kernel = record.kernel
    if record.library and record.fabric is not None and record.fabric.simulated:
        yield f"{record.library} needs GPUs, and the fabric is simulated"
    yield from _library(record)
    if kernel is None:
        if record.status in (Status.PASSED, Status.WRONG) and not is_baseline(record):
            yield f"{record.case.name} is no library's, it {record.status}, and the record has no kernel"
        return
    if kernel.grid < 1 or kernel.block < 1:
        yield f"a launch of {kernel.grid} blocks of {kernel.block} threads"
    if kernel.multimem and record.fabric is not None and not record.fabric.multicast:
        yield "the kernel has multimem instructions, and the fabric no multicast addresses"


def _library(record: Record) -> Iterator[str]:
    """Whether a library or a kernel of ours ran it, which the case, the kernel and the library say each."""
    case, library = record.case, record.library
    is_librarys = case.accumulator == LIBRARY
    if library and not is_librarys:
        yield f"{case.name} is a kernel of ours, and {library} is said to have run it"
    if is_librarys and record.kernel is not None:
        yield f"{case.name} is a library's, and the record has a kernel of ours"
    if is_librarys and not library and record.kernel is None and record.status in (Status.PASSED, Status.WRONG):
        yield f"{case.name} is a library's, it {record.status}, and the record does not say which version ran"
    begins = _LIBRARIES.get(case.algorithm.partition("/")[0])
    if is_librarys and library and begins is not None and not library.startswith(f"{begins} "):
        yield f"{case.name} is run by {begins}, and {library} is said to have run it"
    if told := contradiction(record):
        yield told


def _without_code(record: Record) -> Iterator[str]:
    """What a kernel's record of schema 6 or later always has."""
    if record.schema >= WHOLE_SINCE and record.kernel is not None and record.kernel.code_digest is None:
        yield f"a record of schema {record.schema} has the digest of its code, and this one has none"


def _lacking(record: Record) -> Iterator[str]:
    """What a checked record of schema 6 or later always has."""
    if record.schema < WHOLE_SINCE or record.check is None:
        return
    if record.check.output_digests is None:
        yield f"a check of schema {record.schema} has digests of inputs and outputs, and this one has none"
    is_simulated = record.fabric is not None and record.fabric.simulated
    if is_simulated and record.status is Status.PASSED and not record.counters:
        yield f"a simulated run of schema {record.schema} has counters, and this one has none"


def _reason(record: Record) -> Iterator[str]:
    """What a record that passed may say: nothing, that its check was off, that it has no time because its command was
    interrupted, or that an earlier measurement of it hung."""
    if record.status is not Status.PASSED:
        return
    if record.reason == INTERRUPTED:
        if record.timing is not None:
            yield f"it has a time, and the reason is '{INTERRUPTED}'"
    elif all(_ABOUT_A_HANG.fullmatch(one) for one in record.reason.split("; ")):
        if record.timing is None:
            yield f"it gives the reason {json.dumps(record.reason[:60])}, and has no time"
    elif record.reason not in ("", CHECK_WAS_OFF):
        yield f"it PASSED, and gives the reason {json.dumps(record.reason[:60])}: symlab gives none"
    if record.reason == CHECK_WAS_OFF and record.check is not None:
        yield f"it was checked, and the reason is '{CHECK_WAS_OFF}'"
