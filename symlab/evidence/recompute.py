"""Recomputes what records say, in a process of its own (audit/worker.py): with Hydra, torch and the simulator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from cases.documents import encoded
from cases.record.record import Record
from memory.forked import forked
from reports.record.bundle import read
from reports.record.leaves import by_dotted_path
from runner.case.allowed_code import allowed_code
from runner.case.todays_code import sources
from runner.interrupt import interruptible
from runner.records.scrub import scrubbed_values
from runner.request.experiments import CONF
from runner.request.schema import Schema
from runner.request_error import first_line
from symlab.evidence.audit.items import Ground, Outcome, Point, Tally, listed, recomputed
from symlab.evidence.audit.material import Answer, Material, name_of
from symlab.evidence.audit.worker import Wanted
from symlab.evidence.replay.commits import commits
from symlab.evidence.replay.expected_cases import cases
from symlab.evidence.replay.recomposed import configurations, jobs_of, sources_of

Say = Callable[[str], None]


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
    records = material.records
    code = allowed_code(material.places, wanted.code)
    jobs = jobs_of(records)
    composed, found = configurations(jobs, say, code=code)
    # In a copy, before torch is imported here: both beside each other would take 200 MB more.
    sourced = forked(lambda: sources(records, Path(Schema().cache_dir).expanduser(), say, code=code))
    from symlab.evidence.replay.refusals_again import refusals
    from symlab.evidence.replay.rerun import rerun

    again = rerun(records, wanted.rerun, say, code, wanted.up_to_bytes)
    parts = again.parts
    names = [name_of(folder, document) for folder, document in material.commands.items()]
    not_run = {name: material.not_run.get(name, frozenset()) for name in names}
    is_whole = any(place.suffix != ".json" for place in material.places)
    points = {
        "configuration": found.points("jobs composed again from their overrides"),
        "commit": commits(records),
        "kernels": (*_sources(sourced), *again.part(parts.code, "kernels")),
        "variables": secrets(records).points(
            "different environments, requests and reasons, searched for secrets and home folders"
        ),
        "data": (*again.data(), *again.part(parts.races, "findings of the race checker")),
        "cases": (
            *cases(jobs, composed).points(not_run, is_whole),
            *refusals(records, sources_of(CONF.parent)).points("refusals on GPUs"),
        ),
        "replay": (*again.ran(), *again.part(parts.counters, "counters of the simulator")),
    }
    return Answer({name: tuple(some) for name, some in points.items()}, again.level())


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


def secrets(records: Iterable[Record]) -> Tally:
    """Return which environments, requests and reasons, each once, hold what looks like a secret or a home folder, by
    its dotted path, never the secret."""
    looked_at: set[str] = set()
    found = Tally()
    for record in records:
        parts = {"environment": encoded(record.environment), "request": encoded(record.request)}
        for part, value in {**parts, "reason": record.reason}.items():
            text = f"{part} {json.dumps(value, sort_keys=True)}"
            if not value or text in looked_at:
                continue
            looked_at.add(text)
            there, here = (by_dotted_path({part: one}, into_lists=True) for one in (value, scrubbed_values(value)))
            odd = [where for where in there if there[where] != here[where]]
            found.different += [(record.id, f"{where} holds a secret or a home folder") for where in odd]
            found.agree += [] if odd else [(record.id,)]
    return found
