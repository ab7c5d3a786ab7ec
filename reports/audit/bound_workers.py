"""Workers of a launcher: the machines that a command's records name, against the workers that command.json lists.

A command runs in one process on one machine, or on the workers that its command.json has. So records of a second
machine, of a worker that is not listed, or of a job that another worker took did not come from the command. Nor do
workers that contradict each other, their command's launcher and times, or their records' launcher, times, GPUs and
Slurm nodes. Workers of a part that was killed are not listed: a command writes them down at its end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from cases.record.record import Record
from reports.audit.bound_worlds import gpus_of
from reports.audit.contradiction import Contradiction

CLOCKS, COMMAND = 7, 17

FIRST_SCHEMA = 7
"""The first schema of records whose commands could have workers."""

SKEW = timedelta(minutes=1)
"""By how much the clocks of two machines of a command may differ."""

_ROUNDED = timedelta(seconds=1)
"""By how much a record may lie outside its worker, whose clock is the same."""

_TEXTS = ("launcher", "host", "node", "submission", "gpus", "started", "ended", "how")
_JOBS = ("jobs", "lost")

_SLURM = "submitit_slurm"
_OF_SLURM = {"BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"}
_LAUNCHER = re.compile(r"[+~]*hydra/launcher=[\"']?([\w-]+)[\"']?")


def of_folder(document: Mapping[str, Any], name: str, members: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield what the records of a command say against its list of workers, and two workers on one GPU at once."""
    recent = [record for record in members if record.schema >= FIRST_SCHEMA]
    for sentence in dict.fromkeys(_apart(document, recent)):
        yield Contradiction(COMMAND, f"{name}: {sentence}")
    for sentence in dict.fromkeys(_at_once(recent)):
        yield Contradiction(CLOCKS, f"{name}: {sentence}")


def _apart(document: Mapping[str, Any], records: Sequence[Record]) -> Iterator[str]:
    listed = document.get("workers", [])
    if not isinstance(listed, list) or not all(map(_is_worker, listed)):
        yield "workers of command.json is not what a command writes"
        return
    workers = {(one.get("resumed", 0), one["number"]): one for one in listed}
    if len(workers) < len(listed):
        yield "command.json lists a worker twice"
    parts = _Parts(document)
    for part in sorted({one for one, _ in workers}):
        yield from _of_part(parts, part, [one for key, one in workers.items() if key[0] == part])
    made: dict[tuple[int, int], list[Record]] = {}
    hosts: dict[int, set[str]] = {}
    for record in records:
        part, number = record.request.resumed or 0, worker_of(record)
        if number is None:
            hosts.setdefault(part, set()).add(_host(record))
            if any(one == part for one, _ in workers):
                yield f"{record.id} names no worker, and command.json lists the workers that ran its part"
        elif (part, number) in workers:
            made.setdefault((part, number), []).append(record)
        elif not parts.was_killed(part):
            yield f"{record.id} is of worker {number + 1}, which command.json does not list"
    for key, worker in workers.items():
        yield from _of_worker(worker, made.get(key, []), [one for other, one in workers.items() if other[0] == key[0]])
    for part, named in hosts.items():
        names = named - {""}  # a record that does not say where it ran is no other machine's
        if len(names) > 1:
            where = f"resumption {part}" if part else "its first part"
            yield f"{where} ran in one process, its records on {len(names)} machines: {', '.join(sorted(names))}"


class _Parts:
    """The parts of a command: its first one, number 0, and its resumptions."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        resumed = document.get("resumed")
        self._resumed = [one for one in resumed if isinstance(one, Mapping)] if isinstance(resumed, list) else []
        self._document = document
        self.last = len(self._resumed)

    def was_killed(self, part: int) -> bool:
        """Whether a part was cut short before it could write its workers down."""
        if part >= self.last:
            return "ended" not in self._document
        return self._resumed[part].get("after") == "killed"

    def span(self, part: int) -> tuple[datetime | None, datetime | None]:
        """When a part began, and when at the latest it ended; None where command.json does not say."""
        begins = [self._document.get("started"), *(one.get("at") for one in self._resumed)]
        ends = [*begins[1:], self._document.get("ended")]
        return _moment(begins[part]), _moment(ends[part])

    @property
    def launcher(self) -> str | None:
        """The launcher that the last part with workers was asked for; "" for none, None if a line can't be read."""
        lines = self._document.get("launcher") or []
        if not isinstance(lines, list) or not lines:
            return ""
        found = [match.group(1) for line in lines if (match := _LAUNCHER.fullmatch(str(line)))]
        return found[-1] if found else None

    @property
    def jobs(self) -> set[int] | None:
        """The numbers of the command's jobs; None if it lists none."""
        jobs = self._document.get("jobs")
        return {one["number"] for one in jobs if isinstance(one, Mapping)} if isinstance(jobs, list) else None

    @property
    def unfinished(self) -> set[int] | None:
        """The numbers of jobs that have cases without a record; None if command.json does not say."""
        cases = self._document.get("cases_not_run")
        return {one["job"] for one in cases if isinstance(one, Mapping)} if isinstance(cases, list) else None


def _of_part(parts: _Parts, part: int, workers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What the workers of a part say against each other and against the command."""
    where = f"resumption {part}" if part else "the first part"
    if not 0 <= part <= parts.last:
        yield f"command.json lists workers of resumption {part}, and was resumed {parts.last} times"
        return
    launchers = {one["launcher"] for one in workers}
    if len(launchers) > 1:
        yield f"{where} has workers of {len(launchers)} launchers: {', '.join(sorted(launchers))}"
    asked = parts.launcher
    if asked == "":
        yield f"command.json lists workers of {where}, and no launcher"
    elif part == parts.last and asked is not None and launchers != {asked}:
        yield f"{where} has workers of {', '.join(sorted(launchers))}, and its launcher is {asked}"
    took = Counter(job for one in workers for job in one["jobs"])
    for job in sorted(job for job, number in took.items() if number > 1):
        yield f"job {job + 1} was taken {took[job]} times in {where}"
    if parts.jobs is not None and (unknown := sorted(set(took) - parts.jobs)):
        yield f"a worker took job {unknown[0] + 1}, which the command does not have"
    begins, ends = parts.span(part)
    for one in workers:
        name = f"worker {one['number'] + 1}"
        if set(one["lost"]) - set(one["jobs"]):
            yield f"{name} lost a job that it did not take"
        if part == parts.last and parts.unfinished is not None:
            for job in sorted(set(one["lost"]) - parts.unfinished):
                yield f"{name} is said to have lost job {job + 1}, whose cases all ran"
            for job in sorted((set(one["jobs"]) & parts.unfinished) - set(one["lost"])):
                yield f"{name} took job {job + 1}, which has cases that did not run, and is not said to have lost it"
        for moment in map(_moment, (one["started"], one["ended"])):
            if moment is None:
                continue
            if (begins is not None and moment < begins - SKEW) or (ends is not None and moment > ends + SKEW):
                yield f"{name} was at work at {moment.isoformat()}, outside {where} of its command"


def _of_worker(
    worker: Mapping[str, Any], records: Sequence[Record], beside: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    """What a worker's records say against its entry. beside are all workers of its part."""
    name = f"worker {worker['number'] + 1}"
    started, ended = map(_moment, (worker["started"], worker["ended"]))
    if any(worker[key] and moment is None for key, moment in (("started", started), ("ended", ended))):
        yield f"times of {name} are not what a command writes"
    if worker["starts"] < 1 and (worker["starts"] < 0 or records or worker["host"] or started or ended):
        yield f"{name} was started {worker['starts']} times, and was at work"
    if worker["starts"] > 0 and not (worker["started"] and worker["host"]):
        yield f"{name} was started, and command.json does not say when or where"
    if started and ended and ended < started:
        yield f"{name} ended before it started"
    if worker["launcher"] != _SLURM and worker["how"].partition(" ")[0] in _OF_SLURM:
        yield f"{name} of {worker['launcher']} is said to have ended as Slurm's jobs do: {worker['how']}"
    names = {_host(record) for record in records}
    if worker["starts"] > 1 and len(names | {worker["host"]}) > worker["starts"]:
        yield f"{name} was started {worker['starts']} times, on {len(names | {worker['host']})} machines"
    for record in records:
        yield from _of_record(name, worker, record)
        if not _took(worker, record.request.job, beside):
            yield f"{record.id} is of job {record.request.job + 1}, which {name} did not take"


def _of_record(name: str, worker: Mapping[str, Any], record: Record) -> Iterator[str]:
    """What a record says against its worker. One that was requeued has the place and the times of its last start."""
    launch = record.environment.launch or {}
    said = launch["worker"]
    if said.get("launcher") != worker["launcher"]:
        yield f"{record.id} is of a worker of {said.get('launcher')}, its worker of {worker['launcher']}"
    ended, last = _moment(record.ended), _moment(worker["ended"])
    if ended and last and ended > last + _ROUNDED:
        yield f"{record.id} ended after its worker"
    if worker["starts"] > 1:
        return
    host = _host(record)
    if worker["host"] != host:
        yield f"{record.id} ran on {host or 'a machine without a name'}, its worker on {worker['host']}"
    started, first = _moment(record.started), _moment(worker["started"])
    if started and first and started < first - _ROUNDED:
        yield f"{record.id} began before its worker"
    if str(said.get("gpus") or "") != worker["gpus"]:
        yield f"{record.id} had GPUs {said.get('gpus') or 'none'}, its worker {worker['gpus'] or 'none'}"
    nodes = str(launch.get("node_names") or "")
    if worker["launcher"] == _SLURM and nodes and not set("[,") & set(nodes) and nodes != worker["node"]:
        yield f"{record.id} ran on Slurm's node {nodes}, its worker on {worker['node'] or 'none'}"


def _took(worker: Mapping[str, Any], job: int, beside: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a worker took a job: itself; or a later one of joblib's did after this one was killed, and so the job was
    given again. Workers that see no common folder take no jobs, theirs are dealt out, and no worker lists any."""
    if job in worker["jobs"] or not any(one["jobs"] for one in beside):
        return True
    again = (one for one in beside if one["number"] > worker["number"] and job in one["jobs"])
    return worker["launcher"] == "joblib" and worker["how"] != "finished" and any(again)


def _host(record: Record) -> str:
    return str((record.environment.host or {}).get("name") or "")


def _moment(text: object) -> datetime | None:
    """Return a time, in UTC if it names no zone; None for text that is not a time."""
    if not isinstance(text, str) or not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def worker_of(record: Record) -> int | None:
    """Return the number of the worker that made a record; None if the command's own process did."""
    worker = (record.environment.launch or {}).get("worker")
    number = worker.get("number") if isinstance(worker, Mapping) else None
    return number if type(number) is int else None


def _is_worker(one: object) -> bool:
    """Whether an entry of workers has what a command writes."""
    return (
        isinstance(one, Mapping)
        and all(type(one.get(key)) is int for key in ("number", "starts"))
        and type(one.get("resumed", 0)) is int
        and all(isinstance(one.get(key), str) for key in _TEXTS)
        and all(isinstance(one.get(key), list) and all(type(job) is int for job in one[key]) for key in _JOBS)
    )


def _at_once(records: Sequence[Record]) -> Iterator[str]:
    """Two workers that timed on the same GPU at the same time: each is given GPUs of its own."""
    spans: dict[str, list[tuple[datetime, datetime, int]]] = {}
    for record in records:
        number = worker_of(record)
        if number is None or record.timing is None:
            continue
        times = datetime.fromisoformat(record.started), datetime.fromisoformat(record.ended)
        for uuid in gpus_of(record):
            spans.setdefault(uuid, []).append((*times, number))
    for members in spans.values():
        for one, other in pairwise(sorted(members)):
            if other[0] < one[1] and one[2] != other[2]:
                yield f"workers {one[2] + 1} and {other[2] + 1} timed on the same GPU at the same time"
