"""Recomputes what records say, in a process of its own (audit/worker.py): with Hydra, torch and the simulator."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cases.documents import encoded
from cases.record.record import Record
from memory.forked import forked
from reports.record.bundle import read
from reports.table.text import counted
from runner.case.allowed_code import AllowedCode, allowed_code
from runner.case.todays_code import sources
from runner.interrupt import interruptible
from runner.records.scrub import scrubbed_values
from runner.request.experiments import CONF
from runner.request.schema import Schema
from runner.request_error import first_line
from symlab.evidence.audit.items import Ground, Outcome, Point, listed, recomputed
from symlab.evidence.audit.level import Recomputed
from symlab.evidence.audit.material import Answer, Asked, Material, name_of
from symlab.evidence.audit.worker import Wanted
from symlab.evidence.replay.commits import commits
from symlab.evidence.replay.expected_cases import cases
from symlab.evidence.replay.inputs_again import inputs
from symlab.evidence.replay.recomposed import configurations, jobs_of, sources_of

Say = Callable[[str], None]

CACHE = Path(Schema().cache_dir)


def main(descriptor: int) -> None:
    """The worker: it answers one question of a connection. SIGINT and SIGTERM end it, with what it made removed."""
    connection = Connection(descriptor)
    last_s = time.monotonic() - 1.0

    def say(text: str) -> None:
        nonlocal last_s
        if time.monotonic() - last_s > 0.5:
            last_s = time.monotonic()
            connection.send(text)

    with interruptible():
        places, given, wanted = connection.recv()
        try:
            records = read(places, _untimed) if given is None else list(map(_untimed, given))
            connection.send(answer(Material(tuple(records), places), wanted, say))
        except Exception as error:
            connection.send(Answer(problem=f"the worker gave no answer ({first_line(error)[:200]})"))


def _untimed(record: Record) -> Record:
    """A record without its timing, which nothing here is held to."""
    return replace(record, timing=None)


def answer(material: Material, wanted: Wanted, say: Say) -> Answer:
    """Return the points by the names of the items that they belong to, and how much of the data was recomputed."""
    records, rerun = material.records, wanted.rerun
    code = allowed_code(material.places, wanted.code)
    jobs = jobs_of(records)
    composed, found = configurations(jobs, say, code=code)
    # In a copy, before torch is imported here: both beside each other would take 200 MB more.
    sourced = forked(lambda: sources(records, CACHE.expanduser(), say, code=code))
    again = _rerun(records, wanted, say, code)
    made = inputs(records, wanted.inputs_up_to_bytes, say, code=code, patience_s=rerun.patience_s)
    names = [name_of(folder, document) for folder, document in material.commands.items()]
    not_run = {name: material.not_run.get(name, frozenset()) for name in names}
    points = {
        "configuration": recomputed(found["verified"], *_of_jobs(found), "jobs composed again from their overrides"),
        "commit": _commits(commits(records)),
        "kernels": (*_sources(sourced), *_part(again["code"], "kernels")),
        "variables": _secrets(secrets(records)),
        "inputs": _inputs(made),
        "data": (*_data(again), *_part(again["races"], "findings of the race checker")),
        "cases": (*_cases(cases(jobs, composed), not_run, material.places), *_refusals(records)),
        "replay": (*_ran(again), *_part(again["counters"], "counters of the simulator")),
    }
    return Answer({name: tuple(some) for name, some in points.items()}, _level(again))


def _of_jobs(found: Mapping[str, Any]) -> tuple[list[list[str]], list[list[str]]]:
    """The jobs that differ and those that can't be compared, each by one name."""
    parts = (found["different"], found["not_comparable"])
    named = [[[f"job {job + 1} of {command}", what] for command, job, what in part] for part in parts]
    return named[0], named[1]


def _cases(
    found: Mapping[str, Any], not_run: Mapping[str, Collection[Asked]], places: Sequence[Path]
) -> Iterator[Point]:
    """Yield how the cases that the configurations ask for compare with the records, and those that did not run.
    not_run: by command with a command.json, the cases that it did not come to. Without a command.json the last cases of
    a job may have been left out, or its command may have been interrupted before; one before them was left out, but
    where single files of records were given."""
    what = "cases that configurations ask for"
    missing = [one for one in found["missing"] if (one[1], one[2]) not in not_run.get(one[0], ())]
    is_whole = any(place.suffix != ".json" for place in places)
    gone = [one for one in missing if one[0] in not_run or (is_whole and one in found["passed_over"])]
    odd = [[case, f"missing of {command}"] for command, _, case in gone]
    odd += [[case, f"of {command}, not requested"] for command, _, case in found["unexpected"]]
    _, unsure = _of_jobs({**found, "different": []})
    if left := [one[2] for one in missing if one not in gone]:
        says = "are not here, and no command.json says if they ran: left out, or their command was interrupted"
        yield Point(Outcome.NOT_COMPARABLE, f"{len(left)} of {found['expected']} {what} {says}: {listed(left)}")
    if found["expected"] == len(found["missing"]) and not odd and not unsure:
        yield Point(Outcome.NOT_CAPTURED, f"none of the {what} ran" if found["expected"] else f"{what}: none says any")
    elif odd or unsure or not left:
        yield from recomputed(found["expected"] - len(found["missing"]), odd, unsure, what)


def _refusals(records: Sequence[Record]) -> Iterator[Point]:
    """Yield what was refused on GPUs, decided again."""
    from symlab.evidence.replay.refusals_again import refusals  # torch and the simulator take seconds to import

    found = refusals(records, sources_of(CONF.parent))
    yield from recomputed(len(found["agree"]), found["different"], found["not_comparable"], "refusals on GPUs")


def _rerun(records: Sequence[Record], wanted: Wanted, say: Say, code: AllowedCode) -> dict[str, Any]:
    from symlab.evidence.replay.rerun import rerun

    return rerun(records, wanted.rerun, say, code, wanted.inputs_up_to_bytes)


def _data(again: Mapping[str, Any]) -> Iterator[Point]:
    """Yield how the data of the set compares with that which was made again."""
    agree, stated = again["agree"], again["stated"]
    ways = {
        "simulator": f"in the simulator (seed {again['seed']})",
        "reference": "by the reference",
        "status": "in how they ended",
    }
    how = ", ".join(
        f"{number:,} {text}" for way, text in ways.items() if (number := sum(one[2] == way for one in agree))
    )
    found = recomputed(len(agree), again["different"], again["not_comparable"], f"cases recomputed ({how})")
    yield from (replace(one, share=(one.share[0], again["of"]) if one.share else None) for one in found)
    if stated:
        yield Point(Outcome.CAPTURED, f"data of {counted(len(stated), 'case')}: {_reasons(stated)}")


def _ran(again: Mapping[str, Any]) -> Iterator[Point]:
    """Yield how many cases ran again here from the records alone."""
    ran = sum(how == "simulator" for _, _, how in again["agree"])
    for number, how in (
        (ran, f"from the records alone (seed {again['seed']})"),
        (again["at_commit"], "by their commit's code"),
    ):
        if number:
            says = f"{counted(number, 'case')} run again here {how}"
            yield Point(Outcome.VERIFIED, says, Ground.RECOMPUTED, (number, again["of"]))


def _part(found: Mapping[str, Any], what: str) -> Iterator[Point]:
    """Yield the points of what was compiled or counted when cases ran again."""
    yield from recomputed(len(found["agree"]), found["different"], (), f"{what} of cases that ran again")
    if found["stated"]:
        yield Point(
            Outcome.CAPTURED, f"{what} of {counted(len(found['stated']), 'record')}: {_reasons(found['stated'])}"
        )


def _reasons(stated: Sequence[Sequence[str]]) -> str:
    """Return the reasons, each with the number of cases that have it, the most frequent first."""
    return listed((f"{count} {reason}" for reason, count in Counter(why for _, why in stated).most_common()), 6)


def _level(again: Mapping[str, Any]) -> Recomputed:
    agree, kernels = again["agree"], again["kernels"]
    seen = {kernel for _, kernel, how in agree if how != "status"}
    return Recomputed(
        recomputed=len(agree),
        total=again["of"],
        rerun=sum(how != "reference" for _, _, how in agree),
        ended=sum(how == "status" for _, _, how in agree),
        kernels=kernels,
        without=[name for name in kernels if name not in seen],
        unexplained=len(again["not_comparable"]),
    )


def _commits(found: Mapping[str, Any]) -> Iterator[Point]:
    """Yield what git says of the records' commits."""
    different, unknown = found["different"], found["unknown"]
    if different or found["compared"]:
        what = "environments, their sources compared with those of their commits"
        yield from recomputed(found["compared"] if not different else 0, different, unknown, what, Ground.COMPARED)
        return
    if found["known"]:
        says = f"git has the commit of {counted(found['known'], 'environment')}; the records have no digests of sources"
        yield Point(Outcome.CAPTURED, says)
    if unknown:
        texts = listed(f"{commit[:12]} ({why})" for commit, why in unknown)
        yield Point(Outcome.NOT_COMPARABLE, f"commit unknown here: {texts}")


def _sources(found: Mapping[str, list[Any]]) -> Iterator[Point]:
    """Yield how sources compare with today's. Information, not a finding: sources may change, and so may code."""
    parts = {
        "as today": found["same"],
        "sources moved, code as today": found["same_code"],
        "changed since": [*found["changed"], *(f"{name} (gone)" for name in found["gone"])],
        "recorded before code digests, sources moved since": found["older"],
    }
    said = "; ".join(f"{what}: {listed(names, 10)}" for what, names in parts.items() if names)
    as_today, total = len(found["same"]) + len(found["same_code"]), sum(map(len, found.values()))
    if as_today:
        yield Point(Outcome.VERIFIED, f"sources {said}", Ground.COMPARED, (as_today, total))
    elif said:
        yield Point(Outcome.CAPTURED, f"sources {said}")
    yield from recomputed(0, (), found["not_comparable"], "kernels' sources")


def _secrets(found: Mapping[str, Any]) -> Iterator[Point]:
    what = "different environments, requests and reasons, searched for secrets and home folders"
    different = [[case, f"{where} holds a secret or a home folder"] for case, where in found["found"]]
    yield from recomputed(found["looked_at"] - len(different), different, (), what)


def _inputs(found: Mapping[str, Any]) -> Iterator[Point]:
    different = found["different"]
    agree = found["cases"] - len(different)
    yield from recomputed(agree, different, found["not_comparable"], "records, their inputs made again")
    if found["too_large"]:
        says = f"{counted(found['too_large'], 'record')} of larger inputs: not made again (--inputs-up-to)"
        yield Point(Outcome.NOT_COMPARABLE, says)
    if found["late"]:
        says = f"inputs of {counted(found['late'], 'record')}: there was no time to make them (--rerun N has no limit)"
        yield Point(Outcome.CAPTURED, says)
    if found["not_recorded"]:
        says = f"digests of inputs: {counted(found['not_recorded'], 'checked record')} without any (schema 2)"
        yield Point(Outcome.NOT_CAPTURED, says)


def secrets(records: Iterable[Record]) -> dict[str, Any]:
    """What looks like a secret or a home folder in environments, requests and reasons.

    {"looked_at": number of different ones, "found": [[case id, where], ..]}: where is a dotted path, never the secret.
    """
    looked_at: set[str] = set()
    found: list[list[str]] = []
    for record in records:
        parts = {"environment": encoded(record.environment), "request": encoded(record.request)}
        for part, value in {**parts, "reason": record.reason}.items():
            text = f"{part} {json.dumps(value, sort_keys=True)}"
            if not value or text in looked_at:
                continue
            looked_at.add(text)
            there, here = _leaves(value, part), _leaves(scrubbed_values(value), part)
            found += [[record.id, where] for where in there if there[where] != here[where]]
    return {"looked_at": len(looked_at), "found": found}


def _leaves(value: Any, path: str) -> dict[str, Any]:
    """All that is no list and no dictionary, by its dotted path."""
    if not isinstance(value, (dict, list)):
        return {path: value}
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    return {where: leaf for key, one in pairs for where, leaf in _leaves(one, f"{path}.{key}").items()}
