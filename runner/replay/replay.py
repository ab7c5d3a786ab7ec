"""symlab replay: run what records hold again, in new worlds, and say whether it came out the same.

Everything is taken from the records. What differs here is said before anything runs; then each launch is a command of
its own, with a new world and a folder of records of its own; and a comparison of all that is the verdict. It is kept
beside those folders, as JSON and as a report.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.table.text import counted
from runner.command.console import Console
from runner.request_error import RequestError

if TYPE_CHECKING:
    from reports.record.record import Record
    from runner.command.session import Tools
    from runner.records.store import Store
    from runner.replay.as_here import Compiler
    from runner.replay.rebuild import Rebuilt


@dataclasses.dataclass(frozen=True, slots=True)
class Wanted:
    """The request for a replay.

    what: a file, a folder or a bundle of records, or the id of an MLflow run at mlflow_uri. launches: new worlds. band:
    the share within which two speeds are the same. fabric: "auto" is the recorded one. up_to_bytes: the largest size
    of GPUs' records that the simulator runs. records: the folder for new ones. track_uri: where the new runs are
    logged; "" to log nothing. code: folders whose files records may name, beside the usual ones. changed_code: whether
    files may run that are not those that ran.
    """

    what: str
    launches: int
    band: float
    fabric: str
    up_to_bytes: int
    records: Path
    mlflow_uri: str
    track_uri: str
    code: tuple[Path, ...] = ()
    changed_code: bool = False


class _Quiet(Console):
    """Of a launch: its progress and what goes wrong. Its tables are for the verdict."""

    def say(self, text: str) -> None:
        if text.startswith("["):
            super().say(text)

    def announce(self, text: str) -> None:
        pass


def replay(wanted: Wanted, tools: Tools | None = None) -> int:
    """Run recorded cases again, and compare. Returns the exit code: 0 the same, 1 not, 2 nothing could be compared.

    RequestError for a wrong request.
    """
    before = _records(wanted.what, wanted.mlflow_uri)
    from runner.case.allowed_code import allowed_code
    from runner.replay.rebuild import Wishes, rebuilt

    places = [Path(wanted.what)] if Path(wanted.what).exists() else []
    wishes = Wishes(
        records=str(wanted.records),
        track_uri=wanted.track_uri,
        fabric=wanted.fabric,
        up_to_bytes=wanted.up_to_bytes,
        code=allowed_code(places, wanted.code, changed=wanted.changed_code),
    )
    again = rebuilt(before, wishes)
    return _Replay(wanted, before, again, tools).run()


def _records(what: str, uri: str) -> list[Record]:
    """The records in a file, a folder or a bundle; else those of an MLflow run. RequestError where there are none."""
    from reports.record.bundle import read

    try:
        if Path(what).exists():
            return read([what])
        if re.fullmatch(r"[0-9a-f]{32}", what):
            from reports.tracked import fetch

            return fetch(uri, [what])
    except ValueError as error:
        raise RequestError(f"{error} (RECORDS)") from error
    raise RequestError(f"{what}: no such file or folder, and no MLflow run's id (RECORDS), give one of these")


class _Replay:
    """One replay under way."""

    def __init__(self, wanted: Wanted, before: Sequence[Record], again: Rebuilt, tools: Tools | None) -> None:
        self._wanted = wanted
        self._before = before
        self._again = again
        self._tools = tools
        self._console = Console()
        self._damage = _damage(wanted.what)

    def run(self) -> int:
        """Say what differs, run all launches, compare. Gives the exit code."""
        from reports.record.bundle import digest
        from runner.records.store import Store, StoreError

        command = self._again.command
        commands = list(dict.fromkeys(record.request.command for record in self._before))
        self._console.say(self._headline(commands))
        for line in (*command.fabric_lines, *self._again.remarks):
            self._console.say(line)
        self._say_left_out()
        for line in self._damage:
            self._console.say(f"not as it was left: {line}")
        self._say_differences()
        try:
            store = Store.create(self._wanted.records, f"replay-{command.label}")
        except StoreError as error:
            raise RequestError(f"{error} (--records)") from error
        origin = {"replays": {"commands": commands, "records": digest(self._before)}}
        after: list[Record] = []
        for number in range(1, self._wanted.launches + 1):
            code, records = self._launch(number, store, origin)
            after += records
            if code >= 128:
                self._console.warn(f"symlab: interrupted in launch {number} of {self._wanted.launches}: no verdict")
                store.seal()
                return code
        return self._verdict(store, after)

    def _headline(self, commands: Sequence[str]) -> str:
        count = sum(len(job.cases) for job in self._again.command.jobs)
        worlds = counted(len(commands), "recorded world")
        return f"symlab replay: {counted(count, 'case')} of {worlds}, in {counted(self._wanted.launches, 'new world')}"

    def _say_left_out(self) -> None:
        reasons: dict[str, list[str]] = {}
        for case, reason in self._again.left_out:
            reasons.setdefault(reason, []).append(case)
        for reason, cases in reasons.items():
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            self._console.say(f"not comparable: {cases[0]}{more}: {reason}")

    def _say_differences(self) -> None:
        """What is not here as it was there: before anything runs."""
        from reports.audit.differences import differences, sheet_of
        from reports.table import sheet
        from runner.command.session import Tools
        from runner.replay.as_here import as_here

        self._console.say("looking at what is here, and compiling what is not in the cache")
        there = self._again.records
        tools = self._tools or Tools()
        here = as_here(there, self._again.command, tools.capture, _compiler(tools))
        found = differences(there, here)
        self._console.say(
            sheet.text([sheet_of(found, ("recorded", "here"))], (), sheet.room_here())
            if found
            else "nothing that was recorded differs here"
        )

    def _launch(self, number: int, store: Store, origin: dict[str, Any]) -> tuple[int, list[Record]]:
        """One new world: a command with records of its own below the replay's folder. Gives its exit code, and the
        records of the cases that are compared."""
        from reports.record.bundle import read
        from runner.command.session import run_command

        self._console.say(f"launch {number} of {self._wanted.launches}")
        there = set(store.folder.iterdir())
        jobs = tuple(
            dataclasses.replace(job, request=dataclasses.replace(job.request, records=store.folder))
            for job in self._again.command.jobs
        )
        arguments = ("replay", self._wanted.what, "--launches", str(self._wanted.launches))
        command = dataclasses.replace(self._again.command, arguments=arguments, jobs=jobs, origin=origin)
        code = run_command(command, _Quiet(), self._tools)
        wanted = {record.id for record in self._again.records}
        made: list[Record] = []
        with contextlib.suppress(ValueError):  # none: it was interrupted before its first case
            made = read(sorted(set(store.folder.iterdir()) - there))
        return code, [record for record in made if record.id in wanted]

    def _verdict(self, store: Store, after: Sequence[Record]) -> int:
        """Compare, say it, keep it. Gives the exit code."""
        from reports.audit.comparison import FINDING, compare
        from reports.audit.differences import HEADING
        from reports.html import page
        from reports.record.bundle import VERDICT_NAME
        from reports.table import sheet

        without_case = _without_case(self._before, self._again)
        found = compare(self._again.records, after, self._wanted.band, self._again.left_out, without_case)
        document = json.dumps(found.document(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
        store.write_text(VERDICT_NAME, document)
        store.write_text("report.html", page([*self._again.records, *after], f"Replay of {self._wanted.what}", found))
        store.seal()
        # What differs was said before.
        sheets = [one for one in found.sheets if one.heading != HEADING]
        self._console.say(sheet.text(sheets, found.captions, sheet.room_here()))
        self._console.say(f"records, verdict.json, report.html: {store.folder}")
        if self._damage:
            self._console.say(f"verdict: FINDING: the records are not as they were left; {found.verdict}")
            return FINDING
        self._console.say(f"verdict: {found.verdict}")
        return found.exit_code


def _without_case(before: Sequence[Record], again: Rebuilt) -> tuple[str, ...]:
    """Names of the kernels, not of libraries' collectives, whose recorded cases could all not be run again."""
    from reports.table.compare import is_baseline

    there = {record.case.name for record in again.records}
    recorded = dict.fromkeys(record.case.name for record in before if not is_baseline(record))
    return tuple(name for name in recorded if name not in there)


def _damage(what: str) -> list[str]:
    """What is not as commands left it in a folder of records: changed files, requested cases without a record. Empty
    for a single file, a bundle or a run of MLflow, where this is unknown."""
    from reports.record.bundle import read
    from reports.record.seal import MANIFEST, broken
    from runner.records.command_json import COMMAND_JSON, command_document_of

    found = []
    place = Path(what)
    for path in sorted(place.rglob(MANIFEST)) if place.is_dir() else []:
        found += [f"{path.parent.name}/{fault}" for fault in broken(path.parent)]
    for path in sorted(place.rglob(COMMAND_JSON)) if place.is_dir() else []:
        with contextlib.suppress(ValueError):  # no records, or a manifest that is not valid: its seal says so
            manifest = command_document_of(path.parent)
            missing = manifest.not_run(read([path.parent])) if manifest is not None else ()
            if missing:
                found.append(
                    f"{path.parent.name}: {counted(len(missing), 'missing case')} of those that were asked for"
                )
    return found


def _compiler(tools: Tools) -> Compiler:
    """What compiles a case's kernel here: the command's own means."""
    from runner.command.job import usual_means

    return (tools.means or usual_means()).compiled
