"""The Record: how every case ends, as one versioned JSON document, and the rules that no record can break.

The rules are kept at construction (ValueError), so that whatever reads records (tables, MLflow, audits) can rely on
them:

- A timing exists only beside PASSED with a check, never on a simulated fabric, and never where ranks share a GPU. It
  has a row of samples for every rank.
- A case was run by a kernel of ours or by a library, never by both.
- Any status but PASSED says why: REFUSED, FAILED, DEADLOCK and TIMEOUT in `reason`, WRONG in its check (and
  `reason`).
- PASSED has a check without a fault. The one exception is declared, not implied: `check: false` in the request gives
  PASSED with no check and the reason CHECK_WAS_OFF. Such a record is not `verified`, is never shown as such, and has
  no timing.
- WRONG has a check that found a fault, or a finding of the race checker that fails (a race, a missing proxy fence).
- Findings exist only of a simulated run. Without them (None) a case was not checked for races, which says nothing of
  them; an empty list says that the checker found nothing.
- The id is the case's.

JSON knows no NaN and no infinity: where a field is a float, "NaN", "Infinity" and "-Infinity" stand for them as
strings. Free-form parts (counters, settings, the leaves of environment and request) hold plain JSON values, finite
numbers only.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from cases.case import Case
from cases.documents import LATER, Plain, decoded, encoded, parsed, plain
from cases.dtypes import ITEMSIZES
from cases.finding import Finding, first_failing
from cases.record.request import RecordedEnvironment, RecordedRequest
from cases.record.shared import PARTS, Find, Known, References, SharedError, not_here, text_in
from cases.record.timing import Timing
from cases.refusal import Refusal
from cases.stress import NO_STRESS

SCHEMA_VERSION = 8
"""What is written today. Raised when records have something that a reader of before would not know."""

PUBLISHED_SCHEMA = 2
"""That of the first published records, which are read, too, and written again as they were: the case has no stress, and
environment and request are given in full, not by reference (cases/record/shared.py)."""

FLOORS_SCHEMA = 7
"""That of the records of conf/gpu/floors: as today's, without counts per peer."""

SCHEMAS = (PUBLISHED_SCHEMA, FLOORS_SCHEMA, SCHEMA_VERSION)
"""All that are read. No record of another one was ever published."""

WHOLE_SINCE = 7
"""The first schema whose records and commands an audit holds to all that every command writes today."""

SHARE_GPUS = "share_gpus"
"""Key of the fabric's settings, true where several ranks might have the same GPU (fabric.share_gpus)."""

CHECK_WAS_OFF = "check was off"
"""The reason of a PASSED record without a check: it ran to its end, and its result was not checked."""

INTERRUPTED = "interrupted before it was timed"
"""The reason of a PASSED record without a time whose command was ended before it had one."""

TIMED_WITHOUT = "timed again without {}, which hung while they were timed together"
TIMED_APART = "timed apart: together with others it hung"
"""Reasons of PASSED records with a time, if a first measurement of theirs hung; several are joined by "; "."""

_DIGEST = re.compile("[0-9a-f]{64}")

_LEAST = {"size_bytes": 0, "world_size": 1, "seed": 0, "root": 0, "offset": 0}
"""The smallest numbers that a case can have."""

METHODS = ("bytes", "bitwise", "bitwise_fold", "bound")
"""How outputs were compared. bytes: the raw bits that were moved. bitwise: the bits that any order gives (integers,
exact inputs, minima and maxima). bitwise_fold: against the accumulator's own fold in the algorithm's order. bound:
within a derived error bound of the exact result, where no order is promised."""


class Status(StrEnum):
    """How a case ended."""

    PASSED = "PASSED"
    """It ran, and the check found nothing (or was off, see CHECK_WAS_OFF)."""
    WRONG = "WRONG"
    """It ran, and the check found a fault, or the race checker a race or a missing proxy fence."""
    REFUSED = "REFUSED"
    """It was not run, because the algorithm or the fabric can't do it."""
    FAILED = "FAILED"
    """It broke: a device fault, a lost rank, an error in our own code."""
    DEADLOCK = "DEADLOCK"
    """Every thread waited and nothing could change any more."""
    TIMEOUT = "TIMEOUT"
    """The time or the step budget ran out."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One wrong element: where it is, and both values, as numbers and as bits ("0x3f80", of the dtype's width).

    With method "bound", expected is the exact sum (float64) and expected_bits that sum rounded to the dtype.
    """

    rank: int
    launch: int
    index: int
    expected: float
    actual: float
    expected_bits: str
    actual_bits: str


@dataclass(frozen=True, slots=True)
class Check:
    """What the check of a case found, over all ranks and launches.

    elements were compared (ranks x launches x output elements; 0 of an empty message), wrong of them missed. Errors
    are distances to R, the float64 reference (the exact result of the inputs, rounded to float64) rounded once to the
    output's dtype: an exact, rounded-once result has error 0. max_absolute_error is in the data's units (NaN or
    infinity where outputs hold them and R does not); max_ulp_error and rms_ulp_error count representable numbers of the
    dtype between the two (at most 2**63 - 1; of integers, the difference).

    bound (method "bound" only) says the formula; bound_value is the largest error it permitted to any element, and
    bound_used the largest share of its own bound that an element used up: above 1 is wrong. There, errors are
    measured against the exact sum before it is rounded.

    ranks_equal and launches_equal are observations; they are faults only where the algorithm promises equality.
    guard_faults has one sentence for every guard zone that was written to, and for every compared buffer of a custom
    kernel with elements that were never written.

    Relative errors, the largest and the root mean square, are shares of the root mean square of R, over the elements
    where all is finite; None for integers and where nothing is reduced. results says how many different results the
    ranks had in all, where all should have the same; else None.

    input_digests are of the bytes that each rank put in, output_digests of what each launch gave each rank (none for a
    rank that the op gives nothing): SHA-256 in hexadecimal. None in records of schema 2.
    """

    method: str
    elements: int
    wrong: int
    max_absolute_error: float
    max_ulp_error: int
    rms_ulp_error: float
    ranks_equal: bool
    launches: int
    launches_equal: bool
    ranks_equal_promised: bool = True
    launches_equal_promised: bool = True
    first_mismatch: Mismatch | None = None
    bound: str = ""
    bound_value: float | None = None
    bound_used: float | None = None
    guard_faults: tuple[str, ...] = ()
    max_relative_error: float | None = field(default=None, metadata=LATER)
    rms_relative_error: float | None = field(default=None, metadata=LATER)
    results: int | None = field(default=None, metadata=LATER)
    input_digests: tuple[str, ...] | None = field(default=None, metadata=LATER)
    output_digests: tuple[tuple[str, ...], ...] | None = field(default=None, metadata=LATER)

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(f"check.method: '{self.method}' is none of {', '.join(METHODS)}")
        if not 0 <= self.wrong <= self.elements:
            raise ValueError(f"check: {self.wrong} wrong of {self.elements} elements; at most all of them are wrong")
        if (self.wrong > 0) != (self.first_mismatch is not None):
            raise ValueError(f"check: {self.wrong} wrong elements, first_mismatch says where, just when there are any")
        if self.launches < 1:
            raise ValueError(f"check.launches: {self.launches}; at least one launch is compared")
        if (self.method == "bound") != (self.bound_value is not None and self.bound != ""):
            raise ValueError("check: bound and bound_value belong to the method 'bound', and to no other")
        if self.bound_used is not None and self.wrong == 0 and not self.bound_used <= 1:
            raise ValueError(f"check: {self.bound_used} of the bound was used, which is wrong, and no element is")
        if problem := self._broken_digest():
            raise ValueError(problem)

    def _broken_digest(self) -> str:
        """What is wrong with the digests, or contradicts them; "" when nothing does."""
        inputs, outputs = self.input_digests, self.output_digests
        if (inputs is None) != (outputs is None):
            return "check: input_digests and output_digests come together"
        if inputs is None or outputs is None:
            return ""
        if not all(_DIGEST.fullmatch(one) for one in (*inputs, *(one for row in outputs for one in row))):
            return "check: a digest is 64 hexadecimal digits"
        if len(inputs) != len(outputs):
            return f"check: {len(inputs)} ranks have input_digests, {len(outputs)} output_digests"
        if any(len(row) not in (0, self.launches) for row in outputs):
            return f"check.output_digests: a rank has one for each of {self.launches} launches, or none"
        if self.launches_equal != all(len(set(row)) <= 1 for row in outputs):
            return f"check: launches_equal is {self.launches_equal}, the digests say otherwise"
        return ""

    @property
    def faults(self) -> tuple[str, ...]:
        """What speaks against the result, one sentence each; empty when it is right."""
        found = []
        if self.first_mismatch is not None:
            at = self.first_mismatch
            found.append(
                f"{self.wrong} of {self.elements} elements are wrong; first at rank {at.rank}, index {at.index}, "
                f"launch {at.launch}: expected {at.expected!r} ({at.expected_bits}), got {at.actual!r} "
                f"({at.actual_bits})"
            )
        if self.ranks_equal_promised and not self.ranks_equal:
            found.append("the ranks' results differ in bits although the algorithm promises the same on all")
        if self.launches_equal_promised and not self.launches_equal:
            found.append("repeated launches gave different bits although the algorithm promises the same each time")
        return (*found, *self.guard_faults)


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The code that ran: name is the catalogue's, digests are "sha256:<hex>" ("" where there is no such artefact).

    source_digest is over the kernel's source files, compiler the version of what compiled it. multimem lists the
    multimem instructions in the PTX. grid and block are the launch. code_digest is of the PTX without line information
    (cases/code_digest.py), so that it outlives moved files and comments; None in records of before schema 4.
    assumptions are what the kernel relies on beyond PTX, each "name: sentence"; None if it declares nothing.
    """

    name: str
    entry: str
    arch: str
    ptx_digest: str
    cubin_digest: str
    source_digest: str
    compiler: str
    grid: int
    block: int
    multimem: tuple[str, ...] = ()
    code_digest: str | None = field(default=None, metadata=LATER)
    assumptions: tuple[str, ...] | None = field(default=None, metadata=LATER)


@dataclass(frozen=True, slots=True)
class FabricInfo:
    """The machine it ran on, as the fabric's traits say, and the fabric's settings (multimem model, schedule,
    seed)."""

    name: str
    arch: str
    world_size: int
    heap_bytes: int
    multicast: bool
    multicast_reason: str
    simulated: bool
    description: str = ""
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", plain(self.settings, "fabric.settings"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """How one case ended, and everything needed to judge it. The rules are in the module's docstring.

    id is the case's id. reason is for people; refusal, of a REFUSED case, has the same as values, where its writer gave
    them. library is what ran a baseline, with its version ("NCCL 2.28.9"); "" for our own kernels, which kernel
    describes. findings are those of the race checker, with the gravest first, also of a case that failed; None if the
    case was not checked for races. counters holds the simulator's sums of executed instructions, and of accesses and
    bytes by kind and link, over all launches of the case's program and all ranks. Its "of" says how many launches these
    are, on how many ranks, and how many of them were checked (the first, the last, and those at equal distances
    between; older records lack it: they are sums over the same launches). Older records have "launches" besides, sums
    by launch and phase.
    started and ended are ISO 8601 in UTC, by the wall clock; duration_s is by a monotonic one.
    """

    id: str
    status: Status
    case: Case
    started: str
    ended: str
    duration_s: float
    reason: str = ""
    refusal: Refusal | None = field(default=None, metadata=LATER)
    fabric: FabricInfo | None = None
    kernel: KernelInfo | None = None
    library: str = ""
    check: Check | None = None
    findings: tuple[Finding, ...] | None = field(default=None, metadata=LATER)
    counters: dict[str, Any] = field(default_factory=dict)
    timing: Timing | None = None
    environment: RecordedEnvironment = field(default_factory=RecordedEnvironment)
    request: RecordedRequest = field(default_factory=RecordedRequest)
    schema: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "counters", plain(self.counters, "counters"))
        problem = self._broken_rule() or self._broken_outcome()
        if problem:
            raise ValueError(f"record {self.id or '(no id)'}: {problem}")

    @property
    def verified(self) -> bool:
        """The result was looked at and found right: PASSED alone does not say so."""
        return self.status is Status.PASSED and self.check is not None

    @property
    def is_late_library(self) -> bool:
        """Whether a library's own collective did not finish: a fact about the library, and no fault of the command."""
        return self.status in (Status.TIMEOUT, Status.DEADLOCK) and self.library != ""

    @property
    def race(self) -> Finding | None:
        """The first finding that makes the case WRONG; None if there is none, and if it was not checked for races."""
        return first_failing(self.findings or ())

    def _broken_rule(self) -> str:
        """What is wrong with the parts that every record has; "" when nothing is."""
        if not isinstance(self.status, Status):
            return f"status {self.status!r} is no Status"
        if self.schema not in SCHEMAS:
            return f"schema {self.schema} can't be written; this program writes {SCHEMA_VERSION}"
        if problem := _broken_case(self.case):
            return problem
        if self.id != self.case.id:
            return f"id is '{self.id}', the case gives '{self.case.id}'"
        if not (math.isfinite(self.duration_s) and self.duration_s >= 0):
            return f"duration_s is {self.duration_s}; it must be a finite number of seconds from 0"
        for name, text in (("started", self.started), ("ended", self.ended)):
            if not _is_utc(text):
                return f"{name} is '{text}'; give ISO 8601 in UTC, such as 2026-11-20T12:00:00.000+00:00"
        if self.kernel is not None and self.kernel.name != self.case.name:
            return f"kernel {self.kernel.name} is not what the case asked for, {self.case.name}"
        if self.kernel is not None and self.fabric is not None and self.kernel.arch != self.fabric.arch:
            return f"the kernel was compiled for {self.kernel.arch}, the fabric is {self.fabric.arch}"
        if self.kernel is not None and self.library:
            return f"it can't have been run by the kernel {self.kernel.name} and by {self.library}"
        return ""

    def _broken_outcome(self) -> str:
        """What contradicts the status; "" when nothing does."""
        if self.timing is not None and not self.verified:
            return (
                f"timing needs PASSED with a check, the status is {self.status}{'' if self.check else ' without one'}"
            )
        if self.timing is not None and (self.fabric is None or self.fabric.simulated):
            return "a simulated fabric has no clock of real hardware, so there is no timing"
        if self.timing is not None and self.fabric is not None and self.fabric.settings.get(SHARE_GPUS):
            return "ranks that share a GPU take turns on it, so there is no timing"
        if self.timing is not None and len(self.timing.samples_us) != self.case.world_size:
            return f"timing has samples of {len(self.timing.samples_us)} ranks, the case has {self.case.world_size}"
        if (digests := self.check and self.check.input_digests) and len(digests) != self.case.world_size:
            return f"check has digests of {len(digests)} ranks, the case has {self.case.world_size}"
        if self.check is not None and not self.check.elements and self.case.size_bytes:
            return f"the check compared nothing, and the case has {self.case.size_bytes} bytes"
        if self.refusal is not None and self.status is not Status.REFUSED:
            return f"a refusal belongs to REFUSED, not to {self.status}"
        if problem := self._broken_findings():
            return problem
        if self.status is Status.PASSED:
            if self.fabric is None or self.fabric.world_size != self.case.world_size:
                return "PASSED needs the fabric it ran on, of the case's world size"
            if self.check is None and self.reason != CHECK_WAS_OFF:
                return f"PASSED needs a check, or the reason '{CHECK_WAS_OFF}'"
            if self.check is not None and self.check.faults:
                return f"PASSED, but the check says: {self.check.faults[0]}"
            if (finding := self.race) is not None:
                return f"PASSED, but the race checker says: {finding.sentence()}"
        elif self.status is Status.WRONG:
            if (self.check is None or not self.check.faults) and self.race is None:
                return "WRONG needs a check that found a fault, or a finding that fails"
        else:
            if self.check is not None:
                return f"{self.status} can't have a check, which says that it ran to its end"
            if not self.reason.strip():
                return f"{self.status} needs a reason"
        return ""

    def _broken_findings(self) -> str:
        """What contradicts the findings; "" when nothing does."""
        if self.findings is None:
            return ""
        if self.fabric is None or not self.fabric.simulated:
            return "findings need the simulated fabric that found them"
        return f"{self.status} can't have findings: it did not run" if self.status is Status.REFUSED else ""

    def document(self, references: References | None = None) -> dict[str, Any]:
        """Return the record as a JSON object, with the keys of its schema. references: make references of environment
        and request, which the published schema does not have."""
        if self.schema != PUBLISHED_SCHEMA:
            found: dict[str, Any] = encoded(self, references.of(self) if references is not None else {})
            return found
        found = encoded(self)
        if self.case.stress == NO_STRESS:
            del found["case"]["stress"]
        return found

    def to_json(self) -> str:
        """The record as JSON text, ending in a newline; from_json gives an equal record back."""
        return _text(self.schema, self.document())

    def referring(self, references: References) -> str:
        """Return the same with references in place of environment and request."""
        return _text(self.schema, self.document(references))


def _broken_case(case: Case) -> str:
    """What no case can be; "" when nothing is."""
    for name, least in _LEAST.items():
        if (value := getattr(case, name)) < least:
            return f"case.{name} is {value}; it is a whole number from {least}"
    if case.dtype not in ITEMSIZES:
        return f"case.dtype is '{case.dtype}'; data types: {', '.join(ITEMSIZES)}"
    if case.gemm is not None and case.gemm[0] * case.gemm[1] != case.numel:
        return f"case.gemm is {list(case.gemm)}; C is not of {case.size_bytes} bytes"
    return ""


def _text(schema: int, document: dict[str, Any]) -> str:
    return json.dumps({"schema": schema, **document}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def from_json(text: str, where: str = "record", find: Find = not_here, known: Known | None = None) -> Record:
    """The record in a JSON text. ValueError, naming where, for anything that is no record of a schema known here.

    find gives what the record refers to. known holds the environments and requests of records that were read before.
    Raises SharedError, a ValueError, if what the record refers to is missing or was changed.
    """
    try:
        document = parsed(text)
    except ValueError as error:
        raise ValueError(f"{where}: not JSON ({error})") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise ValueError(f"{where}: not a record (it has no schema number)")
    if schema not in SCHEMAS:
        instead = "; use a newer symlab" if schema > SCHEMA_VERSION else ""
        known_ones = ", ".join(map(str, SCHEMAS))
        raise ValueError(f"{where}: written with schema {schema}, but this program reads schemas {known_ones}{instead}")
    try:
        known = known or Known()
        document.pop("prediction", None)  # a model's word beside a time, which records once had
        for name in PARTS.keys() & document.keys():
            document[name] = known.part(name, document[name], find)
        _known_once(document, known)
        record = decoded(Record, document, "record")
    except SharedError as error:
        raise SharedError(error.what, where) from None
    except RecursionError:
        raise ValueError(f"{where}: not a record (its JSON is nested too deeply)") from None
    except ValueError as error:
        raise ValueError(f"{where}: {_on_one_line(str(error))}") from None
    assert isinstance(record, Record)
    return record


_ALIKE: dict[str, Any] = {"fabric": FabricInfo, "kernel": KernelInfo, "case": Case, "check": Check, "counters": Plain}
"""Parts that are the same in many records: of one kernel at one size, in all worlds."""


def _known_once(document: dict[str, Any], known: Known) -> None:
    """Put what many records have alike in place of its JSON values; what is not valid is left to the codec."""
    for name, kind in _ALIKE.items():
        if isinstance(document.get(name), dict):
            document[name] = known.once(name, document[name], partial(_part, kind, name))
    timing = document.get("timing")
    devices = timing.get("devices") if isinstance(timing, dict) else None
    if isinstance(timing, dict) and isinstance(devices, list):
        read = partial(_part, Plain, "timing.devices")
        timing["devices"] = [known.once("device", one, read) if isinstance(one, dict) else one for one in devices]


def _part(kind: Any, name: str, value: dict[str, Any]) -> Any:
    return Plain(plain(value, name)) if kind is Plain else decoded(kind, value, f"record.{name}")


def _on_one_line(text: str) -> str:
    """Return a message with escapes for control characters and line ends, which it may quote from a file."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", lambda found: repr(found[0])[1:-1], text)


def load(path: Path | str, known: Known | None = None) -> Record:
    """The record in a file. ValueError naming the file when it can't be read or is no record. known: see from_json."""
    text = text_in(path)
    known = known or Known()
    return from_json(text, str(path), known.beside(path), known)


def _is_utc(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).utcoffset() == timedelta(0)
    except ValueError:
        return False
