"""What was asked for, which a command's folder says up to four times: the command line, the overrides, the
configuration in the records, configuration.yaml, and all of them again in command.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from cases.record.reading import contents
from cases.record.record import SHARE_GPUS, WHOLE_SINCE, Record
from reports.audit.bound_worlds import began, ended, stamp_of
from reports.audit.contradiction import Contradiction
from reports.audit.material import AT_ITS_END
from reports.record.leaves import by_dotted_path

CONFIGURATION, COMMAND = 1, 17

MOST_YAML_BYTES = 1 << 18

_OVERRIDE = re.compile(r"[+~]*[A-Za-z_][A-Za-z0-9_.@/]*=.*", re.DOTALL)

_OF_A_LAUNCHER = re.compile(r"[+~]*hydra(/launcher\b|\.launcher[.=@])")
"""Where jobs run, which is the command's and no job's; as runner/request/launching.py reads it."""

_TAKES_A_WORD = frozenset({"-cd", "--config-dir", "-c", "--cfg", "-p", "--package", "-i", "--info"})

_SWEEPS = re.compile(r"=(.*,|(choice|range|interval|glob|sort|shuffle)\()", re.DOTALL)
"""The beginning of an override that may stand for several; lists have commas, too, and are left out as well."""

_STARTS_WITHIN_S = 60.0
"""Maximum time from the second in a command's name to its start."""

_LATE_S = 2.0
"""Maximum time by which a record may lie outside its command: times are rounded."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Of plain values only; the one in C is quicker."""

_OF_THE_SIMULATOR = ("multimem", "schedule", "memory", "seed")

_IN_FAIR_ORDER = ("none", "dead_rank")
"""Stresses that run in the order that was asked for; the others run in random order where fair was asked for."""

_AT_ITS_START = ("command", "command_line", "working_folder", "started", "plan", "jobs", "cases_requested")
"""Keys of command.json, as runner/records/command_json.py writes them."""

_OUTCOMES = ("complete", "interrupted", "stopped")

_SHORT = {"sizes": "sizes.list", "check": "check.results"}
"""Keys that are short for another one unless their value is a dictionary; those of runner/request/overrides.py."""


def of_record(record: Record) -> Iterator[Contradiction]:
    """Yield what a record's case and fabric say against its own request."""
    request = record.request
    for sentence in (*_words(record), *_settings(record), *_resolved(record), *_tuned(record)):
        yield Contradiction(CONFIGURATION, f"{request.command or record.id}: {sentence}")


def _words(record: Record) -> Iterator[str]:
    """The command line against the overrides of a job. Sweeps and replays give jobs overrides of their own, and so may
    the files of experiments, which the audit's worker plans again."""
    request = record.request
    words = [word for word in given(request.command_line) if not _OF_A_LAUNCHER.match(word)]
    if not words or request.replays is not None:
        return
    overrides = {in_full(one) for one in request.overrides}
    for word in words:
        if not _SWEEPS.search(word) and in_full(word) not in overrides:
            yield f"the command line has {_brief(word)}, the overrides of job {request.job + 1} do not"
    of_sweeps = {_key(word) for word in words if _SWEEPS.search(word)}
    more = [one for one in sorted(overrides - set(map(in_full, words))) if _key(one) not in of_sweeps]
    if more and request.jobs == 1 and not request.experiment and not _is_sweep(request.command_line):
        yield f"the overrides have {_brief(more[0])}, the command line does not"


def _is_sweep(command_line: Sequence[str]) -> bool:
    """Whether a command line may sweep, if only over one value: Hydra's own keys can ask for it as well as -m."""
    return any(
        word in ("-m", "--multirun") or word.lstrip("+").startswith(("hydra.", "hydra=")) for word in command_line
    )


def _key(override: str) -> str:
    return in_full(override).partition("=")[0]


def in_full(override: str) -> str:
    """Return an override without its plus signs, and a short key as what it is short for: sizes=4K as sizes.list=4K.

    Overrides of older records have short keys, too: then check=false was not short for anything.
    """
    key, _, value = override.lstrip("+").partition("=")
    return f"{key if value.lstrip().startswith('{') else _SHORT.get(key, key)}={value}"


def given(command_line: Sequence[str]) -> list[str]:
    """Return the overrides among the words of a command line."""
    found, before = [], ""
    for word in command_line:
        if not word.startswith("-") and before not in _TAKES_A_WORD and _OVERRIDE.fullmatch(word):
            found.append(word)
        before = word
    return found


def _settings(record: Record) -> Iterator[str]:
    """What the fabric was set to, against what was asked for."""
    fabric, asked = record.fabric, (record.request.configuration or {}).get("fabric")
    if fabric is None or not isinstance(asked, dict):
        return
    if bool(asked.get(SHARE_GPUS)) != bool(fabric.settings.get(SHARE_GPUS)):
        yield f"fabric.{SHARE_GPUS} was asked to be {_brief(bool(asked.get(SHARE_GPUS)))}, {record.id} ran otherwise"
    if not fabric.simulated:
        return
    blocks, there = _granularity(asked), fabric.settings.get("granularity")
    if blocks is not None and there is not None and blocks != there:
        yield f"fabric.granularity was asked to be {blocks}, {record.id} ran with {_brief(there)}"
    for key in _OF_THE_SIMULATOR:
        wanted, there = asked.get(key), fabric.settings.get(key)
        if key == "schedule" and wanted == "fair" and record.case.stress not in _IN_FAIR_ORDER:
            wanted = "random"  # a stress needs orders that differ
        if wanted is not None and there is not None and wanted != there:
            yield f"fabric.{key} was asked to be {_brief(wanted)}, {record.id} ran with {_brief(there)}"


def _granularity(asked: Mapping[str, Any]) -> str | None:
    """The granularity that a fabric's section asks for, by the simulator's rule; None if it does not say."""
    if "granularity" not in asked:
        return None
    given = asked["granularity"] or ("block" if asked.get("schedule") == "fair" else "access")
    return str(given)


def _resolved(record: Record) -> Iterator[str]:
    """The names that the configuration left open, against the case."""
    resolved, case = record.request.resolved or {}, record.case
    for key, unless in (("dtype", ()), ("accumulator", ("library", "none")), ("reduction", ("none",))):
        named, there = resolved.get(key), getattr(case, key)
        if isinstance(named, str) and there not in unless and named not in (there, "auto"):
            yield f"{key} came to be {named}, {record.id} has {there}"


_TUNING = re.compile(r"t(\d+)b(\d+)l(\d+)(p?)", re.ASCII)


def _tuned(record: Record) -> Iterator[str]:
    """A kernel's tuning and the table's choice, against the name of what ran, which says both."""
    given = record.request.kernel or {}
    chosen, tuning = given.get("chosen"), given.get("tuning")
    if isinstance(chosen, Mapping) and chosen.get("algorithm") != record.case.algorithm:
        yield f"a table chose {_brief(chosen.get('algorithm'))}, {record.id} ran {record.case.algorithm}"
    match = _TUNING.fullmatch(record.case.algorithm.partition("@")[2])
    if match is None:
        return
    threads, blocks, loads = (int(match[number]) for number in (1, 2, 3))
    named = {"threads": threads, "blocks": blocks, "loads_in_flight": loads, "push": bool(match[4])}
    if tuning is not None and tuning != named:
        yield f"its kernel was given the tuning {_brief(tuning)}, which {record.case.algorithm} does not say"
    kernel = record.kernel
    if kernel is not None and (kernel.block != threads or kernel.grid > blocks):
        yield (
            f"{kernel.grid} blocks of {kernel.block} threads were launched, {record.case.algorithm} has {threads} "
            f"threads and {blocks} blocks at most"
        )


def of_folder(folder: Path, document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[Contradiction]:
    """Yield what command.json and the configurations beside it say against the records of their command."""
    name = str(document.get("command", folder.name))
    for item, sentences in (
        (CONFIGURATION, _plans(document, members)),
        (CONFIGURATION, _files(folder, members)),
        (COMMAND, _lines(document, members)),
        (COMMAND, _span(document, members)),
        (COMMAND, _whole(document, members)),
    ):
        yield from (Contradiction(item, f"{name}: {sentence}") for sentence in dict.fromkeys(sentences))


def _jobs(document: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    listed = document.get("jobs")
    return {
        one["number"]: one
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict) and type(one.get("number")) is int
    }


def _plans(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """Overrides and configurations of command.json's jobs against those of the records."""
    jobs, plan = _jobs(document), document.get("plan")
    first = plan.get("configuration") if isinstance(plan, dict) else None
    for record in _one_a_job(members):
        job = jobs.get(record.request.job)
        if job is None:
            continue
        number = record.request.job + 1
        yield from _plan(plan, job, record)
        if isinstance(job.get("overrides"), list) and list(record.request.overrides) != job["overrides"]:
            yield f"command.json has other overrides of job {number} than its records"
        configuration = record.request.configuration
        if isinstance(first, dict) and configuration is not None and isinstance(job.get("differs"), dict):
            wanted = by_dotted_path(first)
            for key, value in job["differs"].items():
                if key.startswith("configuration."):
                    path = key.removeprefix("configuration.")
                    wanted = {one: leaf for one, leaf in wanted.items() if not f"{one}.".startswith(f"{path}.")}
                    wanted |= by_dotted_path({path: value})
            yield from _apart(wanted, by_dotted_path(configuration), f"command.json's plan of job {number}")


def _plan(plan: object, job: Mapping[str, Any], record: Record) -> Iterator[str]:
    """The experiment and the fabric of a job's plan against a record of the job."""
    differs = job.get("differs")
    if not isinstance(plan, dict) or not isinstance(differs, dict):
        return
    said = {**plan, **differs}
    there = {"experiment": record.request.experiment, "fabric": record.fabric.name if record.fabric else None}
    for key, value in there.items():
        if value is not None and key in said and said[key] != value:
            yield f"command.json's plan has the {key} {_brief(said[key])}, the records have {_brief(value)}"


def _files(folder: Path, members: Sequence[Record]) -> Iterator[str]:
    """configuration.yaml, or NN-configuration.yaml of each job of a sweep, against the records."""
    for record in _one_a_job(members):
        configuration = record.request.configuration
        for name in ("configuration.yaml", f"{record.request.job:02d}-configuration.yaml"):
            path = folder / name
            if configuration is None or not path.is_file() or (record.request.job and name == "configuration.yaml"):
                continue
            try:
                written = yaml.load(
                    contents(path, MOST_YAML_BYTES).decode("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader)
                )
            except (ValueError, RecursionError, yaml.YAMLError) as error:
                yield f"{name} can't be read ({str(error).splitlines()[0] if str(error) else type(error).__name__})"
                continue
            if not isinstance(written, dict):
                yield f"{name} holds no configuration"
                continue
            yield from _apart(by_dotted_path(written), by_dotted_path(configuration), name)


def _apart(written: Mapping[str, Any], recorded: Mapping[str, Any], where: str) -> Iterator[str]:
    """The first value that is not the same in both."""
    missing = object()
    for key in dict.fromkeys([*recorded, *written]):
        one, other = written.get(key, missing), recorded.get(key, missing)
        if one != other:
            texts = ["nothing" if value is missing else _brief(value) for value in (one, other)]
            yield f"{where} has {key}: {texts[0]}, the records have {texts[1]}"
            return


def _lines(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    line = document.get("command_line")
    if isinstance(line, list) and any(list(record.request.command_line) not in ([], line) for record in members):
        yield "its command line in command.json is not that of its records"


def _span(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """When a command started and ended, against its name and its records."""
    if not members:
        return
    times = {}
    for key in ("started", "ended"):
        if isinstance(document.get(key), str):
            try:
                times[key] = datetime.fromisoformat(document[key])
                times[key] - began(members)
            except (ValueError, TypeError):
                yield f"{key} of command.json is {_brief(document[key])}, which is no time in UTC"
                times.pop(key, None)
    if "started" in times:
        if (early_s := (times["started"] - began(members)).total_seconds()) > _LATE_S:
            yield f"a record began {early_s:,.0f} s before the command started"
        stamp = stamp_of(str(document.get("command", "")))
        if stamp is not None and abs((times["started"] - stamp).total_seconds()) > _STARTS_WITHIN_S:
            yield f"it started at {document['started']}, which its name does not say"
    if "ended" in times:
        if (late_s := (ended(members) - times["ended"]).total_seconds()) > _LATE_S:
            yield f"a record ended {late_s:,.0f} s after the command ended"
        if "started" in times and times["ended"] < times["started"]:
            yield "it ended before it started"


def _whole(document: Mapping[str, Any], members: Sequence[Record]) -> Iterator[str]:
    """What every command.json has that was written beside records of schema 6 or later, and how its command ended."""
    if not any(record.schema >= WHOLE_SINCE for record in members):
        return
    has_ended = any(key in document for key in AT_ITS_END)
    lacking = [key for key in (*_AT_ITS_START, *(AT_ITS_END if has_ended else ())) if key not in document]
    if lacking:
        yield f"command.json has no {', '.join(lacking)}, which every command writes"
    cases = [case for job in _jobs(document).values() if isinstance(job.get("cases"), list) for case in job["cases"]]
    if document.get("cases_requested") not in (None, len(cases)):
        yield f"{_brief(document['cases_requested'])} cases were requested, the jobs of command.json have {len(cases)}"
    outcome, missing = document.get("outcome"), document.get("cases_not_run")
    if outcome is not None and outcome not in _OUTCOMES:
        yield f"outcome {_brief(outcome)} is none of {', '.join(_OUTCOMES)}"
    elif outcome == _OUTCOMES[0] and document.get("why"):
        yield f"it ended {outcome}, and says why it stopped: {_brief(document['why'])}"
    elif isinstance(missing, list) and outcome is not None and (outcome == _OUTCOMES[0]) == bool(missing):
        yield f"it ended {outcome}, and {len(missing)} cases did not run"


def _one_a_job(members: Sequence[Record]) -> Iterator[Record]:
    """One record for each different request of a job: as a rule one a job."""
    seen: dict[tuple[object, ...], Record] = {}
    for record in members:
        request = record.request
        text = json.dumps([request.overrides, request.configuration], sort_keys=True)
        seen.setdefault((request.job, text), record)
    yield from seen.values()


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:58]}.."
