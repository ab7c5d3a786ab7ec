"""symlab publish: run experiments in several worlds each, and keep what they gave as a set for publication.

In parts: the plan is kept in the set's folder, and so is each finished world, at once. A later call goes on with what
is missing, after an interrupt, a kill, or on another machine that has a copy of the folder. A world that is there never
runs again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from cases.record.record import Record
from reports.record import bundle
from reports.record.bundle import PLAN_NAME
from reports.table.text import counted, reason_of, summary
from runner.environment.repository import source_digests
from runner.environment.worktree import SHORT, said
from runner.interrupt import shielded
from runner.records.lock import FolderInUse, FolderLock
from runner.request.compose import compose_jobs, hydra_over
from runner.request.experiments import CONF
from runner.request_error import RequestError
from symlab.evidence.audit.level import RERUNS
from symlab.evidence.audit.worker import Rerun
from symlab.evidence.publish import pages
from symlab.evidence.publish.pages import StoredWorld
from symlab.evidence.publish.plan import LEAST_WORLDS, Plan, PlannedWorld, missing_text, read_plan
from symlab.evidence.publish.running import WRONG_REQUEST, Ran, run_world
from symlab.evidence.publish.verb import Options as Options

OWN_KEYS = ("records", "track", "exp", "hydra/launcher")
"""Keys of a command that publish decides."""

ROOT = CONF.parent


@dataclass(frozen=True, slots=True)
class Seams:
    """What a publication works with; tests put their own in. run: a world's arguments by the code of a folder. audit:
    audits a whole set. root: the repository."""

    run: Callable[[Path, Sequence[str]], Ran] = run_world
    audit: Callable[[Path, Sequence[Record], Rerun, Callable[[str], None]], bool] = pages.audited
    root: Path = ROOT


def publish(options: Options, seams: Seams | None = None) -> int:
    """Do what a command line asks for. Returns the exit code: 0 the set is whole, 1 a world or a case failed or the
    audit has a finding. RequestError for a wrong request."""
    seams = seams or Seams()
    folder = options.folder
    try:
        with _made(folder), FolderLock(folder):
            plan = _planned(options, seams)  # with the lock: another call may have changed what is there until now
            plan.write(folder)
            return _Publication(options, plan, seams).run()
    except FolderInUse as error:
        raise RequestError(f"{error} (FOLDER), wait for its end") from None
    except RequestError:
        raise
    except ValueError as error:  # a file that can't be written
        raise RequestError(f"{error} (FOLDER), make room and go on with the same command") from None
    except OSError as error:
        raise RequestError(f"{folder} can't be written to ({error.strerror}; FOLDER), give another folder") from None


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder. If the block raises, remove what was made and is still empty: a refused request leaves nothing."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            for one in made:
                one.rmdir()
        raise


def _planned(options: Options, seams: Seams) -> Plan:
    """Return the plan to work on: the folder's, or a new one. RequestError if another one is asked for."""
    earlier = read_plan(options.folder)
    if earlier is None and (others := _others_in(options.folder)):
        raise RequestError(
            f"{options.folder} holds other files, such as {others[0]}, and no plan (FOLDER), give a new or empty folder"
        )
    if not options.experiments and earlier is None:
        raise RequestError(
            "there is no plan yet (--experiment), name at least one, such as --experiment allreduce_gpus"
        )
    for line in options.overrides:
        key = re.sub(r"^[+~]+", "", line).partition("=")[0]
        if key.partition(".")[0] in OWN_KEYS:
            raise RequestError(f"'{line}': publish decides {key} ({key}), leave it out")
    plan = earlier or Plan((), worlds=LEAST_WORLDS, commit=_head(seams.root), code=source_digests(seams.root))
    asked = replace(
        plan,
        experiments=tuple(dict.fromkeys(options.experiments)) or plan.experiments,
        overrides=options.overrides or plan.overrides,
        multirun=options.multirun or plan.multirun,
        worlds=options.worlds or plan.worlds,
    )
    if earlier is None:
        plan = _told_apart(asked)
    elif asked != plan:
        raise RequestError(
            f"the plan there is another: {pages.plan_command(plan, str(options.folder))} (FOLDER), leave out all but "
            "FOLDER to go on with it, or begin another folder"
        )
    if plan.left(options.folder):
        plan = _checked(plan, options, seams)
    return plan


def _others_in(folder: Path) -> list[str]:
    """Return the names of the files in a folder, but for hidden ones; none where there is no folder."""
    return sorted(path.name for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []


def _checked(plan: Plan, options: Options, seams: Seams) -> Plan:
    """Return a plan of which worlds are to run, with the digests of its experiments. RequestError if code or
    experiments here are not those of the worlds that ran."""
    if source_digests(seams.root) != dict(plan.code):
        begun = f" (commit {plan.commit[:SHORT]})" if plan.commit else ""
        raise RequestError(
            f"the plan is of other code than is here{begun} (FOLDER), check that commit out to go on, or begin another "
            "folder"
        )
    if _would_change(options.folder, seams.root):
        raise RequestError(
            f"{options.folder} is in the repository and not ignored, so that records would be of a changed tree "
            f"(FOLDER), give a folder such as records/{options.folder.name}, and move it once it is whole"
        )
    asked = {name: _digest_of(plan, name, options.config_dir) for name in plan.experiments}
    for name, digest in plan.asked.items():
        if asked.get(name) != digest:
            raise RequestError(
                f"{name} is another experiment here than in the plan (--config-dir), give the folder of configurations "
                "that the plan began with, or begin another folder"
            )
    return replace(plan, asked=asked)


def _would_change(folder: Path, root: Path) -> bool:
    """Return whether git would say that a repository is changed by files in a folder."""
    place = folder.absolute().resolve()
    if not place.is_relative_to(root.resolve()) or not _head(root):
        return False
    return not said(root, "check-ignore", str(place / PLAN_NAME))


def _told_apart(plan: Plan) -> Plan:
    """Return a plan whose bundles have names of their own. RequestError if two experiments would have the same."""
    if len({world.name for world in plan.order()}) < len(plan.order()):
        raise RequestError(
            "two experiments would have bundles of the same names, since '/' becomes '-' (--experiment), give one of "
            "them another folder"
        )
    return plan


def _head(root: Path) -> str:
    return said(root, "rev-parse", "HEAD") or ""


def _digest_of(plan: Plan, experiment: str, config_dir: Path | None) -> str:
    """Return a digest of what an experiment of a plan composes to here. RequestError for a wrong one."""
    with hydra_over(config_dir):
        jobs = compose_jobs([f"+exp={experiment}", *plan.overrides, "track=none"], plan.multirun)
    asked = [[list(job.overrides), job.configuration] for job in jobs]
    return f"sha256:{hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()}"


@dataclass(slots=True)
class _Publication:
    """One call: its plan, what is stored, and which experiments were refused by whose code."""

    options: Options
    plan: Plan
    seams: Seams
    stored: list[StoredWorld] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    failed: int = 0

    @property
    def folder(self) -> Path:
        return self.options.folder

    def run(self) -> int:
        """Run what is missing, then write what a set has. Returns the exit code."""
        self.stored = pages.stored_worlds(self.plan, self.folder)
        left = self.plan.left(self.folder)
        total = len(self.plan.order())
        self._say(f"symlab publish: {counted(total, 'world')}, {len(left)} to run")
        try:
            self._run_all(left)
            self._write_all()
        except KeyboardInterrupt as interrupt:
            done = len(self.plan.done(self.folder))
            interrupt.add_note(f"{done} of {counted(total, 'world')} are in {self.folder}; the same command goes on")
            raise
        return self._end()

    def _run_all(self, left: Sequence[PlannedWorld]) -> None:
        """Run worlds one after another."""
        for world in left:
            if world.experiment not in self.refused:
                self._run_one(world)

    def _run_one(self, world: PlannedWorld) -> None:
        """Run a world and store it, or say why it failed."""
        at = self.plan.order().index(world) + 1
        title = f"[{at}/{len(self.plan.order())}] {world.name}"
        self._say(f"{title}: running")
        config_dir = self.options.config_dir
        more = [] if config_dir is None else ["--config-dir", str(config_dir.absolute())]
        ran = self.seams.run(self.seams.root, [*more, *pages.run_arguments(self.plan, world.experiment)])
        why = ran.why or self._other_machine(ran.records)
        if why:
            self.failed += 1
            if ran.exit_code == WRONG_REQUEST:  # the next world of this experiment would be refused in the same words
                self.refused.add(world.experiment)
            self._say(f"{title}: FAILED: {why}")
            return
        with shielded():  # bundle, plan and pages belong together
            self._store(StoredWorld(world, ran.records))
        self._say(f"{title}: stored, {summary(ran.records, len(ran.records))}, {self.stored[-1].seconds:.0f} s")

    def _other_machine(self, records: Sequence[Record]) -> str:
        """Return why records are of another machine than the set's; "" if they are not."""
        mine = {pages.machine_of(one.records) for one in self.stored} - {""}
        ran = pages.machine_of(records)
        return f"it ran on {ran}, and the set is of {', '.join(sorted(mine))}" if ran and mine - {ran} else ""

    def _store(self, done: StoredWorld) -> None:
        """Keep a world: the bundle first, by which it counts as done."""
        pages.forget_whole(self.folder)
        bundle.write(done.records, done.world.path(self.folder))
        self.stored.append(done)
        self._write_pages()

    def _write_pages(self) -> None:
        order = self.plan.order()
        self.stored.sort(key=lambda one: order.index(one.world))
        pages.write_pages(self.plan, self.folder, self.stored)

    def _write_all(self) -> None:
        """Write what a set has beside its bundles; of a whole one kernels, too, and audit it."""
        self._write_pages()
        records = bundle.merged(one for done in self.stored for one in done.records)
        if not records:
            return
        pages.write_figure(self.folder, records)
        if self.plan.left(self.folder):
            return
        pages.write_kernels(self.folder, records, self._say)
        rerun = Rerun(RERUNS, secrets.randbelow(1_000_000), None)
        self.failed += not self.seams.audit(self.folder, records, rerun, self._say)

    def _end(self) -> int:
        """Say what is there and what is not. Returns the exit code."""
        left = self.plan.left(self.folder)
        bad = [(done, record) for done in self.stored for record in done.bad]
        for done, record in bad:
            self._say(f"{done.world.name}: {record.id}: {record.status}: {reason_of(record)}")
        for line in missing_text(left):
            self._say(f"not there yet: {line}")
        there = len(self.stored)
        self._say(f"{there} of {counted(there + len(left), 'world')} in {self.folder}")
        if left:
            self._say("the same command runs what is left")
        elif any(pages.is_timed(one.records) for one in self.stored):
            place = pages.published_place(self.seams.root, self.folder, self.stored)
            self._say(f"to publish it: mv {shlex.quote(str(self.folder))} {place} && symlab publish --derive")
        return int(bool(self.failed) or not all(record.is_late_library for _, record in bad))

    def _say(self, text: str) -> None:
        print(text, file=sys.stdout, flush=True)
