"""What `symlab explore` does: the subjects of an experiment, the search, the trace, and the file to repeat it from."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reports.table.text import counted
from runner.interrupt import exit_code_of
from runner.request_error import RequestError
from runner.world.fabrics import FabricName, HostOffer
from simulator.options import Memory
from symlab.checks.explore.of_case import subject_of
from symlab.checks.explore.verb import DECIDED
from symlab.checks.explore.verb import Options as Options

if TYPE_CHECKING:
    from runner.command.plan import Command
    from runner.request.compose import ComposedJob
    from symlab.checks.explore.found import Found
    from symlab.checks.explore.search import Plan, Searched
    from symlab.checks.explore.subject import Subject

NOTHING = "this proves no absence of mistakes: other orders were not run"

NOT_TRIED = {
    "memory": "weak memory (fabric.memory=weak)",
    "races": "the race checker (check.races=true)",
}
"""What an exploration leaves out unless it is asked for, with the key that asks."""

UNDECIDED = (
    "no run was decided, so that nothing is known; give more time (--seconds, deadline_s), steps, or smaller cases"
)
"""What is said where the time or the steps ended all runs."""


def explore(options: Options) -> int:
    """Search, shrink, print and keep; or repeat. Returns the exit code. RequestError for a wrong request."""
    if options.replay is not None:
        return _repeat(options, options.replay)
    _check_output(options)
    command = jobs_of(options.overrides, options.multirun, options.config_dir)
    subjects, places, lines = _subjects(command, options.case)
    print("\n".join(lines), flush=True)
    return _explored(options, subjects, places, command)


def _explored(
    options: Options, subjects: Sequence[Subject], places: Sequence[tuple[int, str]], command: Command
) -> int:
    from symlab.checks.explore.found import Kept, shrunk
    from symlab.checks.explore.progress import searched
    from symlab.checks.explore.search import plan_of

    plan = plan_of(subjects, options.orders, options.seeds, options.seconds, options.processes)
    done = searched(plan)
    for note in done.notes:
        print(f"symlab: {note}", file=sys.stderr)
    print(_done(plan, done), flush=True)
    if done.found is None:
        return _nothing(done, not_tried(subjects))
    trial, failure = done.found
    job, case = places[trial.subject]
    print(f"found: {failure.kind}, first under {trial.order}; looking for fewer switches", flush=True)
    limit_s = 0.0 if done.interrupt is not None else options.shrink_s
    found, interrupt = shrunk(subjects[trial.subject], trial.order, failure, limit_s)
    print(found.text())
    path = options.output or Path(_file_name(found))
    try:
        Kept.of(found, tuple(command.jobs[job].composed.overrides), case, options.config_dir).write(path)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror} (-o), give a file in a folder that can be written to") from None
    print(f"repeat it with: symlab explore --replay {shlex.quote(str(path))}")
    interrupt = done.interrupt or interrupt
    return 1 if interrupt is None else exit_code_of(interrupt)


def not_tried(subjects: Sequence[Subject]) -> list[str]:
    """Return what finds mistakes and was not tried on some of the subjects."""
    left_out = []
    if any(subject.options.memory == Memory.strong for subject in subjects):
        left_out.append(NOT_TRIED["memory"])
    if not all(subject.options.races for subject in subjects):
        left_out.append(NOT_TRIED["races"])
    return left_out


def _nothing(searched: Searched, left_out: Sequence[str]) -> int:
    """Say that no run failed, how much that tells, and what was not tried. Returns the exit code: 2 if no run was
    decided."""
    if searched.interrupt is not None:
        said = "the runs so far found nothing" if searched.decided else "no run was decided so far"
        print(f"symlab: interrupted: {said}", file=sys.stderr)
        return exit_code_of(searched.interrupt)
    if not searched.decided:
        print(UNDECIDED)
        return 2
    print(f"nothing was found; {NOTHING}")
    if left_out:
        print(f"not tried: {', '.join(left_out)}")
    return 0


def _done(plan: Plan, searched: Searched) -> str:
    """Return "400 runs of 4 cases in 31.2 s (12.8 a second, 2 processes): seeds 0 to 49, random"."""
    cases, schedules = len(plan.subjects), [one.schedule for one in plan.orders]
    seeds = max(-(-searched.runs // plan.runs_of_a_seed), 1)
    numbers = f"seeds {plan.first_seed} to {plan.first_seed + seeds - 1}"
    rate = searched.runs / max(searched.seconds, 1e-9)
    runs = f"{counted(searched.runs, 'run')} of {counted(cases, 'case')} in {searched.seconds:.1f} s"
    text = (
        f"{runs} ({rate:.3g} a second, "
        f"{searched.processes} process{'es' * (searched.processes > 1)}): {numbers}, {' and '.join(schedules)}"
    )
    if searched.undecided:
        first = searched.undecided[0].splitlines()[0]
        text += f"\n{counted(len(searched.undecided), 'run')} undecided, the first: {first}"
    return text


def _file_name(found: Found) -> str:
    order = found.order
    label = re.sub(r"[^A-Za-z0-9.]+", "-", found.label).strip("-")
    return f"explore-{label[:120]}-{order.schedule}-{order.seed}.json"


def _check_output(options: Options) -> None:
    """RequestError for a file that can't be written, before anything runs."""
    path = options.output
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise RequestError(f"{path} can't be written (-o), give a file in a folder that exists")


# Subjects


def jobs_of(overrides: Sequence[str], multirun: bool = False, config_dir: Path | None = None) -> Command:
    """The jobs that overrides ask for, each in the simulator. RequestError for what can't be."""
    from runner.command.plan import prepare
    from runner.command.refusals import refuse_if_nothing_can_run
    from runner.request.compose import compose_jobs, hydra_over

    for line in overrides:
        key = line.lstrip("+~").partition("=")[0]
        if key in DECIDED:
            raise RequestError(f"an exploration chooses {key} itself ({key}), {DECIDED[key]}")
    with hydra_over(config_dir):
        jobs = [_simulated(one) for one in compose_jobs(overrides, multirun)]
    # Without GPUs, "auto" means the simulator.
    command = prepare(overrides, jobs, machine=lambda: HostOffer(0, "an exploration runs in the simulator", False))
    refuse_if_nothing_can_run(command)
    return command


def _simulated(job: ComposedJob) -> ComposedJob:
    """The same job. RequestError for one that runs on GPUs, or that compares nothing."""
    if job.request.fabric.name == FabricName.nvshmem:
        raise RequestError("an exploration runs in the simulator (fabric=nvshmem), leave it out")
    if not job.request.check:
        raise RequestError("without its check a wrong output is not seen (check=false), leave it out")
    return job


def _subjects(command: Command, wanted: str) -> tuple[list[Subject], list[tuple[int, str]], list[str]]:
    """What is explored: subjects, the job and the case of each, and lines that say so. RequestError if there is none.

    wanted: a part of the ids of the cases that are taken, "" for all.
    """
    from runner.command.refusals import refusal_in

    subjects: list[Subject] = []
    places: list[tuple[int, str]] = []
    refused = []
    every = [(number, job, case) for number, job in enumerate(command.jobs) for case in job.cases]
    for number, job, case in every:
        if wanted and wanted not in case.id:
            continue
        if refusal := refusal_in(job, case):
            refused.append(f"not explored: {case.id}: {refusal}")
            continue
        subjects.append(subject_of(job, case))
        places.append((number, case.id))
    if not subjects and not refused:
        raise RequestError(f"no case has '{wanted}' in its id (--case), one is {every[0][2].id}")
    if not subjects:
        raise RequestError(f"{refused[0]} (--case), give another case")
    shown = [f"  {case}" for _, case in places[:8]] + ([f"  and {len(places) - 8} more"] if len(places) > 8 else [])
    return subjects, places, [f"symlab explore: {counted(len(subjects), 'case')}", *shown, *refused]


# Again


def _repeat(options: Options, path: Path) -> int:
    """--replay: run one failure again. Returns 1 if it fails, 0 if not, 2 if the time or the steps ended the run."""
    from symlab.checks.explore.found import read
    from symlab.checks.explore.reading import lines_of

    if options.overrides:
        raise RequestError(f"a file says what it repeats ({options.overrides[0]}), give --replay alone")
    kept = read(path)
    folder = options.config_dir or (Path(kept.config_dir) if kept.config_dir is not None else None)
    command = jobs_of(kept.overrides, False, folder)
    found = [(job, case) for job in command.jobs for case in job.cases if case.id == kept.case]
    if not found:
        raise RequestError(f"{path}: there is no case {kept.case} any more (--replay), look at its experiment")
    subject = subject_of(*found[0])
    if subject.digest != kept.digest:
        print("the kernel differs from the one of the file: the file's choices are followed as far as they fit")
    ran = kept.replayed(subject)
    if ran.failure is None:
        says = f"it is undecided whether this order fails: {ran.undecided}" if ran.undecided else ""
        print(f"{kept.case}: {says or 'this order does not fail any more'}")
        return 2 if ran.undecided else 0
    cause = [f"what went wrong: {ran.cause}"] if ran.cause else []
    print("\n".join([f"{kept.case}: {ran.failure.kind}: {ran.failure.message}", *cause, *lines_of(ran.rows)]))
    print("the same failure" if ran.failure == kept.failure else f"it failed otherwise: {kept.failure.message}")
    return 1
