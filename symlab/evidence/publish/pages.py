"""What stands beside the bundles of a set: its page and table whenever a world is added; figure and kernels.

The same files as of a machine in reports/published, so that a set can be put there as it is. A set that was simulated
has no times: no figure, and no kernels, by which only times are predicted.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cases.record.record import Record, Status
from reports.figures import picture
from reports.record.bundle import KERNELS_NAME, SUFFIX, merged, unpacked
from reports.record.writing import write_file
from reports.table.compare import commit_text, device_text, is_simulated
from reports.table.text import counted
from runner.request_error import RequestError
from symlab.evidence import published as machines
from symlab.evidence.audit.checklist import check
from symlab.evidence.audit.command import Progress
from symlab.evidence.audit.items import Outcome
from symlab.evidence.audit.worker import Rerun, Wanted
from symlab.evidence.publish.plan import Plan, PlannedWorld, missing_text
from symlab.rooms import has, part_of

PAGE, TABLE = "README.md", "table.md"

HEAD = "<!-- made by symlab publish, which writes it again whenever a world is added: do not edit -->"

_RIGHT = (Status.PASSED, Status.REFUSED)


@dataclass(frozen=True, slots=True)
class StoredWorld:
    """A world that has its bundle, with the records in it."""

    world: PlannedWorld
    records: tuple[Record, ...]

    @property
    def seconds(self) -> float:
        """The wall-clock time from the first case's beginning to the last one's end."""
        begun = min(datetime.fromisoformat(one.started) for one in self.records)
        return (max(datetime.fromisoformat(one.ended) for one in self.records) - begun).total_seconds()

    @property
    def bad(self) -> tuple[Record, ...]:
        """The records of cases that were wrong or failed, and of libraries that did not finish."""
        return tuple(one for one in self.records if one.status not in _RIGHT)


def stored_worlds(plan: Plan, folder: Path) -> list[StoredWorld]:
    """Return the worlds that are done, with their records. RequestError for a bundle that can't be read or is empty."""
    found = []
    for world in plan.done(folder):
        try:
            records = tuple(unpacked(world.path(folder)))
        except ValueError as error:
            raise RequestError(f"{error} (FOLDER), remove it, and its world runs again") from None
        if not records:
            raise RequestError(f"{world.path(folder)} has no record (FOLDER), remove it, and its world runs again")
        found.append(StoredWorld(world, records))
    return found


def machine_of(records: Sequence[Record]) -> str:
    """Return what ran records, in words: fabric, architecture and GPUs, or the simulator, whatever its settings. The
    same for all worlds of one machine; "" if no case came to run."""
    ran = [one for one in records if one.fabric is not None]
    return ", ".join(sorted({_machine(one) for one in ran}))


def _machine(record: Record) -> str:
    fabric = record.fabric
    assert fabric is not None
    return "simulator" if is_simulated(record) else f"{fabric.name} {fabric.arch} {device_text(record)}"


def is_timed(records: Sequence[Record]) -> bool:
    """Whether records have times of real hardware."""
    return any(one.timing is not None for one in records)


def write_pages(plan: Plan, folder: Path, stored: Sequence[StoredWorld]) -> None:
    """Write page and table of each set that has a world."""
    if stored:
        records = merged(record for one in stored for record in one.records)
        _replace(folder / PAGE, _page(plan, folder, stored))
        _replace(folder / TABLE, machines.machine_table(folder.absolute().name, records))


def write_figure(place: Path, records: Sequence[Record]) -> None:
    """Draw the figure of a set with times, unless it is there and shows these records."""
    if is_timed(records):
        path = place / machines.FIGURE
        shown = list(machines.featured(records).records)
        if machines.outdated({path: shown}):
            write_file(path, picture(shown))


def write_kernels(place: Path, records: Sequence[Record], say: Callable[[str], None]) -> None:
    """Compile the kernels that timed records name, unless they are there."""
    if has("publish, kernels"):
        part_of("publish, kernels")(place, records, say)
    else:
        say(f"{KERNELS_NAME} is not written: symlab/speed is not installed")


def audited(place: Path, records: Sequence[Record], rerun: Rerun, say: Callable[[str], None]) -> bool:
    """Audit a set, and say what is found. Returns whether there is no finding."""
    progress = Progress()
    audit = check(records, [place], say=progress, wanted=Wanted(rerun=rerun))
    progress.end()
    say(f"audit: {audit.verdict}")
    for item in audit.items:
        for point in (one for one in item.points if one.outcome is Outcome.FINDING):
            say(f"FINDING: {item.name}: {point.evidence}")
    return not audit.level.findings


def published_place(root: Path, folder: Path, stored: Sequence[StoredWorld]) -> str:
    """Return where a set belongs below root: reports/published/<its folder's name>, with the day on which it began if
    that machine is there already."""
    name, _ = machines.machine_and_day(folder.absolute().name)
    day = min(record.started for one in stored for record in one.records)[:10]
    place = machines.PLACE / name
    return (place.with_name(f"{name}-{day}") if (root / place).exists() else place).as_posix()


def forget_whole(place: Path) -> None:
    """Remove what is of all records of a set, which a further world makes another one."""
    (place / KERNELS_NAME).unlink(missing_ok=True)


def plan_command(plan: Plan, folder: str) -> str:
    """Return the command line that a plan is of."""
    words = ["symlab", "publish", folder]
    for one in plan.experiments:
        words += ["--experiment", one]
    return shlex.join([*words, "--worlds", str(plan.worlds), *(["-m"] if plan.multirun else []), *plan.overrides])


def _page(plan: Plan, folder: Path, stored: Sequence[StoredWorld]) -> str:
    """Return a set's page: what ran, where, when, by which code and commands, what is missing, how to check it."""
    name = folder.absolute().name
    total = len(plan.experiments) * plan.worlds
    records = [record for one in stored for record in one.records]
    first = min(one.started for one in records)[:10]
    last = max(one.ended for one in records)[:10]
    days = first if first == last else f"{first} to {last}"
    ranks = sorted({one.case.world_size for one in records})
    commits = sorted({commit_text(one) or "of an unknown commit" for one in records})
    lines = [
        HEAD,
        "",
        f"# {machine_of(records)}",
        "",
        f"{len(stored)} of {counted(total, 'world')}, {counted(len(records), 'record')}: "
        f"{', '.join(map(str, ranks))} ranks; {days} (UTC); symlab {', '.join(commits)}.",
    ]
    if any(map(is_simulated, records)):
        lines += ["", "The simulator ran it: there are no times and no bandwidths, and so no figure."]
    lines += ["", *_worlds_table(stored), *_missing(plan, folder)]
    lines += [
        "",
        "## By which command",
        "",
        f"    {plan_command(plan, name)}",
        "",
        "which ran for each world, in new processes:",
        "",
        *(f"    {shlex.join(['symlab', 'run', *run_arguments(plan, one)])}" for one in plan.experiments),
        "",
        "## To check it, in this folder",
        "",
        "    symlab audit .",
        "    symlab table .",
    ]
    return "\n".join(lines) + "\n"


def run_arguments(plan: Plan, experiment: str) -> list[str]:
    """Return the arguments of symlab run by which a world of an experiment runs."""
    return [*(["-m"] if plan.multirun else []), f"+exp={experiment}", *plan.overrides, "track=none"]


def _worlds_table(stored: Sequence[StoredWorld]) -> list[str]:
    lines = ["| bundle | begun (UTC) | took | cases | passed | refused | wrong, failed or late |"]
    lines.append("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for one in stored:
        begun = min(record.started for record in one.records)[:19].replace("T", " ")
        counts = [sum(record.status is status for record in one.records) for status in _RIGHT]
        file = one.world.name.rpartition("/")[2] + SUFFIX
        cells = [file, begun, _duration(one.seconds), len(one.records), *counts, len(one.bad)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def _missing(plan: Plan, folder: Path) -> list[str]:
    lines = [f"- {line}" for line in missing_text(plan.left(folder))]
    return ["", "Not there yet:", "", *lines] if lines else []


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.1f} min"


def _replace(path: Path, text: str) -> None:
    """Write a text, unless it is there."""
    if not path.is_file() or path.read_bytes() != text.encode():
        write_file(path, text.encode())
