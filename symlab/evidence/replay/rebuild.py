"""From records alone to a command that runs the same cases again.

A job is rebuilt from the configuration that its records hold, with everything pinned that was left open then:
algorithms, baselines, sizes, data types. The files in conf/ are ignored, so later changes to them have no effect. What
was measured beside others is measured beside the same ones. A rebuilt case must have the recorded one's id, which has
all fields; what can't be rebuilt, or not run here, is named with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from cases.record.record import FabricInfo, Record
from reports.table.compare import accumulator, is_baseline
from runner.case.allowed_code import AllowedCode, allowed_code
from runner.case.bringing import (
    differs_here,
    is_other_code,
    is_place,
    recorded_digest_here,
    recorded_place,
    recorded_spec,
    refuse_recorded,
    refuse_requested,
)
from runner.command.plan import Command, PreparedJob, prepare
from runner.request.compose import ComposedJob
from runner.request.configured import merged, plain_configuration
from runner.request.schema import Schema
from runner.request.sizes import format_bytes
from runner.request.validate import CUSTOM, validate
from runner.request_error import RequestError, first_line
from runner.world.fabrics import FabricRequest, HostOffer, look, resolve

if TYPE_CHECKING:
    from cases.case import Case

SIMULATED_UP_TO_BYTES = 1 << 20
"""Cases of GPUs up to this size are run again in the simulator, where there is no GPU: beyond, each takes minutes."""

NOT_OF_THE_JOB = ("records", "track", "cache_dir")
"""Keys that say where things are kept, not what is run."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The choices of a replay: where records are, the fabric ("auto": the recorded one, or the simulator
    where that is unavailable), the largest size (None: any, but SIMULATED_UP_TO_BYTES for cases of GPUs in the
    simulator). machine returns what this machine offers. code: the
    files that records may name (None: the usual ones), and whether they may have changed."""

    records: str = "records"
    fabric: str = "auto"
    up_to_bytes: int | None = None
    machine: Callable[[], HostOffer] = look
    code: AllowedCode | None = None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A command that runs recorded cases again, and the records to compare with them.

    records are those of the cases that are run again, of all worlds; the command may have more cases, that run beside
    them. left_out are ids of cases that are not run, each with the reason. remarks have to be said.
    """

    command: Command
    records: tuple[Record, ...]
    left_out: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]

    @property
    def is_simulated(self) -> bool:
        return all(job.request.fabric.simulated for job in self.command.jobs)


def rebuilt(records: Sequence[Record], wishes: Wishes) -> Rebuilt:
    """The command that runs these records' cases again, each once. RequestError where none of them can be."""
    jobs: list[PreparedJob] = []
    lines: dict[str, None] = {}
    left_out: list[tuple[str, str]] = []
    remarks: dict[str, None] = {}
    compared: set[tuple[str, str]] = set()
    for number, (key, members) in enumerate(_by_job(records).items()):
        fabric, remark = _fabric_of(members, wishes)
        remarks |= {remark: None} if remark else {}
        wanted, impossible = _possible(members, fabric, wishes)
        remarks |= {text: None for record in wanted if (text := _other_code(record, wishes))}
        left_out += impossible
        if not wanted:
            continue
        prepared = _prepared(number, wanted, fabric, wishes)
        lines |= dict.fromkeys(prepared.fabric_lines)
        (job,) = prepared.jobs
        cases, different = _the_same(job.cases, wanted)
        left_out += different
        if cases:
            jobs.append(replace(job, cases=cases))
            gone = {case for case, _ in different}
            compared |= {(key, record.id) for record in wanted if record.id not in gone}
    if not jobs:
        reasons = "; ".join(dict.fromkeys(reason for _, reason in left_out))
        raise RequestError(f"none of the {len(records)} records can be run again here: {reasons} (replay)")
    jobs = [replace(job, composed=replace(job.composed, number=number)) for number, job in enumerate(jobs)]
    command = Command((), tuple(jobs), tuple(lines))
    again = tuple(record for record in records if (_job_of(record), record.id) in compared)
    return Rebuilt(command, again, tuple(left_out), tuple(remarks))


def _other_code(record: Record, wishes: Wishes) -> str:
    """The remark on files that are not the recorded ones; "" otherwise. RequestError where that is not wished."""
    text = differs_here(record)
    if text and not (wishes.code and wishes.code.changed):
        raise RequestError(f"{text} (RECORDS), give --changed-code to run it as it is here")
    return text


def _by_job(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Records by the job that they are of, in order of appearance; a case that several worlds ran counts once."""
    found: dict[str, dict[str, Record]] = {}
    for record in records:
        members = found.setdefault(_job_of(record), {})
        if record.id not in members or (members[record.id].timing is None and record.timing is not None):
            members[record.id] = record
    return {key: list(members.values()) for key, members in found.items()}


def _job_of(record: Record) -> str:
    """What tells a record's job from others, whatever world ran it. RequestError where it can't be rebuilt."""
    configuration = record.request.configuration
    if configuration is None:
        raise RequestError(f"the record {record.id} holds no configuration to rebuild it from (replay)")
    job = {key: value for key, value in configuration.items() if key not in NOT_OF_THE_JOB}
    return json.dumps([job, record.request.overrides], sort_keys=True)


def _fabric_of(members: Sequence[Record], wishes: Wishes) -> tuple[dict[str, Any], str]:
    """The fabric section to run members on, and what has to be said of the choice."""
    info = next((record.fabric for record in members if record.fabric is not None), None)
    asked = dict((members[0].request.configuration or {}).get("fabric") or {})
    recorded = info.name if info is not None else str(asked.get("name", "simulator"))
    name = wishes.fabric if wishes.fabric != "auto" else recorded
    if name != "nvshmem":
        return _simulated(asked, info, name), (
            "measured on GPUs, run again in the simulator: its data is compared, its speed can't be"
            if recorded == "nvshmem"
            else ""
        )
    section = {**asked, "name": "nvshmem"}
    try:
        resolve(_request_of(section), members[0].case.world_size, wishes.machine)
    except RequestError as error:
        if wishes.fabric == "nvshmem":
            raise
        why = str(error).partition(" (")[0]
        return _simulated(asked, info, "simulator"), (
            f"measured on GPUs, and here {why}: its data is run again in the simulator, its speed can't be compared"
        )
    return section, ""


def _simulated(asked: dict[str, Any], info: FabricInfo | None, name: str) -> dict[str, Any]:
    """The simulator as it was; for what ran on GPUs, one of their architecture with what multicast they had."""
    section = {**asked, "name": name}
    if info is not None and not info.simulated:
        section |= {"arch": info.arch, "multicast": info.multicast, "heap_bytes": None, "gpu": None}
    return section


def _request_of(section: dict[str, Any]) -> FabricRequest:
    return validate(_configuration({"fabric": {**section, "gpu": None}})).fabric


def _possible(
    members: Sequence[Record], fabric: dict[str, Any], wishes: Wishes
) -> tuple[list[Record], list[tuple[str, str]]]:
    """The records whose cases can be run on the fabric; and why the others can't."""
    from kernels.catalogue import is_known

    code = wishes.code or allowed_code()
    simulated = fabric["name"] != "nvshmem"
    wanted, impossible = [], []
    for record in members:
        name, size_bytes = record.case.name, record.case.size_bytes
        was_measured = record.fabric is not None and not record.fabric.simulated
        if is_baseline(record) and simulated:
            reason = "a library's collective needs GPUs"
        elif not is_baseline(record) and not is_known(name) and not recorded_place(record):
            reason = f"there is no {name} any more"
        else:
            reason = _too_large(size_bytes, simulated and was_measured, wishes)
        if not reason and recorded_place(record):
            try:
                refuse_recorded(record, None, code)
                if not code.changed and is_other_code(record, record.case.algorithm):
                    _other_code(record, wishes)
                recorded_digest_here(record) if record.case.op == CUSTOM else recorded_spec(record)
            except RequestError:
                raise
            except ValueError as error:
                reason = f"its kernel is not here: {first_line(error)}"
        if reason:
            impossible.append((record.id, reason))
        else:
            wanted.append(record)
    return wanted, impossible


def _too_large(size_bytes: int, is_brought: bool, wishes: Wishes) -> str:
    """Why a case is too large to run again; "" if it is not. is_brought: from GPUs to the simulator."""
    most_bytes = wishes.up_to_bytes
    if most_bytes is None and is_brought:
        most_bytes = SIMULATED_UP_TO_BYTES
    if most_bytes is None or size_bytes <= most_bytes:
        return ""
    return f"{'in the simulator ' if is_brought else ''}only up to {format_bytes(most_bytes)} (--up-to)"


def _prepared(number: int, wanted: Sequence[Record], fabric: dict[str, Any], wishes: Wishes) -> Command:
    """A command of one job that has the wanted cases, among others."""
    first = wanted[0]
    beside = [name for record in wanted if record.timing is not None for name in record.timing.interleaved_with]
    on_gpus = fabric["name"] == "nvshmem"
    ours = [_as_asked(record, record.case.algorithm) for record in wanted if not is_baseline(record)]
    libraries = [record.case.algorithm for record in wanted if is_baseline(record)]
    if on_gpus:
        ours += [_as_asked(first, name) for name in beside if _is_kernel(first, name)]
        libraries += [name for name in beside if not _is_kernel(first, name)]
    pinned: dict[str, Any] = {
        "op": first.case.op,
        "algorithms": list(dict.fromkeys(ours)) or list(dict.fromkeys(libraries)),
        "baselines": list(dict.fromkeys(libraries)) if ours else [],
        "dtype": first.case.dtype,
        "accumulator": accumulator(first),
        "reduction": first.case.reduction,
        "sizes": {"list": sorted({record.case.size_bytes for record in wanted})},
        "fabric": fabric,
        "records": wishes.records,
        "cache_dir": Schema().cache_dir,
        "track": {"name": "none"},
    }
    if not on_gpus:
        pinned["library"] = {"nccl": None}  # the simulator loads none
        check = (first.request.configuration or {}).get("check")
        is_brought = first.case.op == CUSTOM or any(map(is_place, ours))
        if isinstance(check, dict) and not is_brought and any(record.findings is not None for record in wanted):
            pinned["check"] = {**check, "races": True}  # they may be on for a brought kernel that does not run again
    if first.case.gemm is not None:
        del pinned["sizes"]  # M, N and K say it
    if first.case.op == CUSTOM:  # its section says all of this
        for key in ("algorithms", "baselines", "dtype", "accumulator", "reduction", "sizes"):
            del pinned[key]
    config = _configuration({**(first.request.configuration or {}), **pinned})
    request = validate(config)
    job = ComposedJob(
        number=number,
        overrides=first.request.overrides,
        experiment=first.request.experiment,
        configuration=plain_configuration(config),
        request=request,
    )
    code = wishes.code or allowed_code()
    refuse_requested(job.request, None, code)
    for name in beside if on_gpus and not code.changed else ():
        if recorded_place(first, name) and is_other_code(first, name):
            place = recorded_place(first, name)
            raise RequestError(
                f"{place} is not the file that ran (RECORDS), give --changed-code to run it as it is here"
            )
    return prepare((), [job], machine=wishes.machine)


def _is_kernel(record: Record, algorithm: str) -> bool:
    from kernels.catalogue import is_known

    return is_known(f"{record.case.op}/{algorithm}") or bool(recorded_place(record, algorithm))


def _as_asked(record: Record, algorithm: str) -> str:
    """A kernel of a record's job as a request names it: by its place if it was brought."""
    return recorded_place(record, algorithm) or algorithm


def _configuration(values: dict[str, Any]) -> DictConfig:
    """A whole configuration: values, and the schema's for what is not among them. RequestError for unknown keys."""
    try:
        return merged(values)
    except OmegaConfBaseException as error:
        raise RequestError(
            f"the record's configuration is not one of this version: {first_line(error)} ({error.full_key}), "
            "replay it with the version that made it: the record's environment names its commit"
        ) from None


def _the_same(cases: Sequence[Case], wanted: Sequence[Record]) -> tuple[tuple[Case, ...], list[tuple[str, str]]]:
    """The rebuilt cases that are run: those of the records, and those that they were measured beside. And why records
    have none: it would be another case."""
    by_id = {case.id: case for case in cases}
    different = []
    run: set[str] = set()
    for record in wanted:
        case = by_id.get(record.id)
        if case is None:
            different.append((record.id, "its configuration gives no such case here"))
            continue
        run.add(record.id)
        if record.timing is not None:
            names = {*record.timing.interleaved_with}
            run |= {one.id for one in cases if one.size_bytes == case.size_bytes and one.algorithm in names}
    return tuple(case for case in cases if case.id in run), different
