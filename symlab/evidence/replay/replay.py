"""symlab replay: run what records hold again, in new worlds, and say whether it came out the same.

Everything is taken from the records. Each launch is a command of its own, with a new world and a folder of records of
its own; a comparison of all that, and of what they were made with, is the verdict. It is kept beside those folders, as
JSON and as a report. Where cases are timed, worlds of the recorded code alternate with those of today's, see
symlab/evidence/replay/in_turns.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.table.text import counted
from runner.command.console import Console
from runner.request_error import RequestError
from symlab.evidence.replay.verb import Wanted as Wanted

if TYPE_CHECKING:
    from cases.record.record import Record
    from runner.command.running import Tools
    from runner.records.store import Store
    from symlab.evidence.replay.rebuild import Rebuilt


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
    before = records_of(wanted.what)
    from runner.case.allowed_code import allowed_code
    from symlab.evidence.replay.rebuild import Wishes, rebuilt

    places = [Path(wanted.what)] if Path(wanted.what).exists() else []
    wishes = Wishes(
        records=str(wanted.records),
        fabric=wanted.fabric,
        up_to_bytes=wanted.up_to_bytes,
        code=allowed_code(places, wanted.code, changed=wanted.changed_code),
    )
    again = rebuilt(before, wishes)
    return _Replay(wanted, before, again, tools).run()


class _Replay:
    """One replay under way."""

    def __init__(self, wanted: Wanted, before: Sequence[Record], again: Rebuilt, tools: Tools | None) -> None:
        self._wanted = wanted
        self._before = before
        self._again = again
        self._tools = tools
        self._console = Console()
        self._commit = ""
        self._in_turns: list[Record] = []
        self._seed = secrets.randbelow(1_000_000)

    def run(self) -> int:
        """Run all launches, compare. Gives the exit code."""
        with contextlib.ExitStack() as stack:
            code, apart = self._recorded_code(stack)
            return self._run(code, apart)

    def _recorded_code(self, stack: contextlib.ExitStack) -> tuple[Path | None, str]:
        """The folder of the recorded code, to be run in turns with today's; or None, and the reason."""
        from runner.environment.worktree import SHORT, recorded_commit, worktree
        from runner.request.experiments import CONF

        if not self._is_timed():
            return None, ""
        self._commit, why = recorded_commit(self._again.records, CONF.parent)
        short = self._commit[:SHORT]
        if not why:
            try:
                return stack.enter_context(worktree(CONF.parent, self._commit)), f"commit {short}"
            except OSError as error:
                why = f"git can't make a worktree of {short} ({error})"
        return None, f"apart in time: the recorded code is not run in turns with today's: {why}"

    def _is_timed(self) -> bool:
        """Whether times of here can be compared with recorded ones."""
        return not self._again.is_simulated and any(record.timing is not None for record in self._again.records)

    def _run(self, code: Path | None, remark: str) -> int:
        """As run(). code: the folder of the recorded code, None not to run it; remark says which, or why not."""
        from reports.record.bundle import digest
        from runner.records.store import Store, StoreError

        command = self._again.command
        commands = list(dict.fromkeys(record.request.command for record in self._before))
        self._console.say(self._headline(commands))
        turns = (
            f"in turns with the recorded code ({remark}), in an order drawn by seed {self._seed}: "
            f"{counted(self._wanted.launches, 'world')} of each"
        )
        for line in (*command.fabric_lines, *self._again.remarks, *filter(None, [turns if code else remark])):
            self._console.say(line)
        try:
            store = Store.create(self._wanted.records, f"replay-{command.label}")
        except StoreError as error:
            raise RequestError(f"{error} (--records)") from error
        origin = {"replays": {"commands": commands, "records": digest(self._before), "order_seed": self._seed}}
        after: list[Record] = []
        for number in range(1, self._wanted.launches + 1):
            exit_code, code = self._pair(number, store, origin, code, after)
            if exit_code >= 128:
                self._console.warn(f"symlab: interrupted in launch {number} of {self._wanted.launches}: no verdict")
                store.seal()
                return exit_code
        return self._verdict(store, after)

    def _pair(
        self, number: int, store: Store, origin: dict[str, Any], code: Path | None, after: list[Record]
    ) -> tuple[int, Path | None]:
        """One launch: a world of today's code, whose records are added to after, and one of the recorded code, where
        code is its folder. Gives the exit code, 128 or more if interrupted, and that folder while its code runs."""
        from symlab.evidence.audit.order import pairs

        turns = pairs(number, str(self._seed))[-1] if code is not None else "B"
        self._console.say(f"launch {number} of {self._wanted.launches}")
        exit_code = 0
        for turn in turns:
            if turn == "B":
                exit_code, records = self._launch(store, origin)
                after += records
            elif code is not None:
                exit_code, is_run = self._recorded(store, code)
                code = code if is_run else None
            if exit_code >= 128:
                break
        return exit_code, code

    def _recorded(self, store: Store, code: Path) -> tuple[int, bool]:
        """One new world of the recorded code. Gives its exit code, and whether it left records."""
        from symlab.evidence.replay.in_turns import run_recorded

        turn = run_recorded(code, self._again.records, self._wanted.fabric, store.folder)
        # An old commit may lack what is run, so that an installed version of the project ran instead.
        made = self._wanted_of(turn.folders)
        records = [one for one in made if (one.environment.git or {}).get("commit") == self._commit]
        self._in_turns += records
        if turn.exit_code < 128 and not records:
            says = "apart in time: the recorded code gave no record of its commit, and is not run any more"
            self._console.say(f"{says}: {turn.complaint or f'exit code {turn.exit_code}'}")
        return turn.exit_code, bool(records)

    def _wanted_of(self, folders: Sequence[Path]) -> list[Record]:
        """The records in folders that are of the cases to compare; none where they have none, as after an interrupt."""
        from reports.record.bundle import read

        wanted = {record.id for record in self._again.records}
        made: list[Record] = []
        with contextlib.suppress(ValueError):
            made = read(folders) if folders else []
        return [record for record in made if record.id in wanted]

    def _headline(self, commands: Sequence[str]) -> str:
        count = sum(len(job.cases) for job in self._again.command.jobs)
        worlds = counted(len(commands), "recorded world")
        out = f" ({counted(len(self._again.left_out), 'other case')} not compared)" if self._again.left_out else ""
        new = counted(self._wanted.launches, "new world")
        return f"symlab replay: {counted(count, 'case')}{out} of {worlds}, in {new}"

    def _launch(self, store: Store, origin: dict[str, Any]) -> tuple[int, list[Record]]:
        """One new world: a command with records of its own below the replay's folder. Gives its exit code, and the
        records of the cases that are compared."""
        from runner.command.session import run_command

        there = set(store.folder.iterdir())
        jobs = tuple(
            dataclasses.replace(job, request=dataclasses.replace(job.request, records=store.folder))
            for job in self._again.command.jobs
        )
        arguments = ("replay", self._wanted.what, "--launches", str(self._wanted.launches))
        command = dataclasses.replace(self._again.command, arguments=arguments, jobs=jobs, origin=origin)
        code = run_command(command, _Quiet(), self._tools)
        return code, self._wanted_of(sorted(set(store.folder.iterdir()) - there))

    def _verdict(self, store: Store, after: Sequence[Record]) -> int:
        """Compare, say it, keep it. Gives the exit code."""
        from reports.html import page
        from reports.record.bundle import VERDICT_NAME
        from reports.table import sheet
        from symlab.evidence.audit.comparison import compare
        from symlab.evidence.audit.result import as_json

        before, again, wanted = self._again.records, self._again, self._wanted
        without = without_case(self._before, again)
        found = compare(before, after, wanted.band, again.left_out, without, wanted.gate, self._in_turns, True)
        store.write_text(VERDICT_NAME, as_json(found))
        shown = [*before, *self._in_turns, *after]
        store.write_text("report.html", page(shown, f"Replay of {self._wanted.what}", found))
        store.seal()
        self._console.say(sheet.text(found.sheets, found.captions, sheet.room_here()))
        self._console.say(f"records, verdict.json, report.html: {store.folder}")
        self._console.say(f"verdict: {found.verdict}")
        return found.exit_code


def records_of(what: str) -> list[Record]:
    """The records in a file, a folder or a bundle. RequestError where there are none."""
    from reports.record.bundle import read

    try:
        if Path(what).exists():
            return read([what])
    except ValueError as error:
        raise RequestError(f"{error} (RECORDS)") from error
    raise RequestError(f"{what}: no such file or folder (RECORDS), give one")


def without_case(before: Sequence[Record], again: Rebuilt) -> tuple[str, ...]:
    """Names of the kernels, not of libraries' collectives, whose recorded cases could all not be run again."""
    from reports.table.compare import is_baseline

    there = {record.case.name for record in again.records}
    recorded = dict.fromkeys(record.case.name for record in before if not is_baseline(record))
    return tuple(name for name in recorded if name not in there)
