"""symlab tune: search what is best for each size of each job, keep records of the finalists, write a table of choices.

Three parts: the search (search.py), which can be cut short and goes on; then one ordinary command that runs the
finalists of every size side by side, with records like any other's; then the table, whose figures are those of these
records. In the simulator the same is done with counts of instructions, which say nothing about times: a table of them
is written only on request (--simulated), and GPUs refuse to choose by it.
"""

from __future__ import annotations

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.catalogue import SPECS, find
from kernels.spec import Case
from kernels.stress import NO_STRESS
from kernels.tuned.table import (
    INSTRUCTIONS,
    MICROSECONDS,
    Entry,
    Searched,
    Table,
    digest_of,
    read,
    slug_of,
)
from memory.atomic_file import replacing
from memory.fabric import Traits
from reports.table.sheet import Line, Sheet, room_here, text
from reports.table.text import counted
from runner.case.best import SIMULATED, gpu_name
from runner.command.plan import PreparedJob, prepare
from runner.command.start import run_quietly
from runner.environment.repository import source_digests
from runner.interrupt import exit_code_of
from runner.request.chooser import BEST
from runner.request.compose import ComposedJob, compose_jobs, hydra_over
from runner.request.schema import TimingMode
from runner.request.sizes import format_bytes
from runner.request.validate import CONF
from runner.request_error import RequestError
from runner.tune.candidates import Candidates
from runner.tune.compiling import Compiler, processors
from runner.tune.entries import Kept, crossed, entry_of, kept_in, merged
from runner.tune.regret import regrets, report, unseen_sizes
from runner.tune.search import Bench, Search
from runner.tune.state import State
from runner.world.fabrics import HostOffer, look, resolve

if TYPE_CHECKING:
    from runner.request.validate import ResolvedRequest
    from runner.tune.bench import Worlds

SUFFIX = ".search"
"""What the name of the file with the search so far has behind that of the table."""

SIZES = tuple(1 << power for power in range(10, 29, 2))
SIMULATED_SIZES = SIZES[:4]
"""Sizes that are searched where none are given: 1K, 4K, .. 256M; in the simulator up to 64K."""

OWN_FINALISTS = 2
"""How many of a size's best are run again for the table, at this size and at those next to it."""

OURS = ("algorithms", "sizes")
"""Keys that the jobs of finalists have values of their own for."""


@dataclass(frozen=True, slots=True)
class Options:
    """What `symlab tune` was asked."""

    overrides: tuple[str, ...] = ()
    multirun: bool = False
    config_dir: Path | None = None
    output: Path | None = None
    seconds: float | None = None
    simulated: bool = False
    processes: int | None = None
    unseen: bool = False
    regret: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Seams:
    """What a search works with; tests put their own in. bench makes where candidates of a job are measured. finals runs
    the finalists' jobs and returns the folder of their records. now: seconds of a monotonic clock. machine: what there
    is here; gpu: the type of its GPUs."""

    bench: Callable[[Worlds, ResolvedRequest, Compiler], Bench] | None = None
    worlds: Callable[[ResolvedRequest, Callable[[str], None]], Worlds] | None = None
    finals: Callable[[Sequence[str], Sequence[ComposedJob]], Path] | None = None
    now: Callable[[], float] = time.monotonic
    machine: Callable[[], HostOffer] = look
    gpu: Callable[[], str] = gpu_name


@dataclass(frozen=True, slots=True)
class Point:
    """One case to search: the job it is of, and the case with the algorithm "best"."""

    job: PreparedJob
    case: Case

    @property
    def label(self) -> str:
        case = self.case
        placement = " in place" if case.placement == "in_place" else ""
        return f"{case.op} {case.dtype} {format_bytes(case.size_bytes)} n{case.world_size}{placement}"


def tune(options: Options, given: Sequence[str] = (), seams: Seams | None = None) -> int:
    """Do what a command line asks for. Returns the exit code. RequestError for a wrong request."""
    if options.regret:
        return _show_regret(options.regret)
    tuning = _Tuning(options, given, seams or Seams())
    return tuning.measure_unseen() if options.unseen else tuning.run()


def _show_regret(places: Sequence[Path]) -> int:
    from reports.record.bundle import read as read_records

    try:
        said, is_small = report(regrets(read_records(places)))
    except ValueError as error:
        raise RequestError(f"{error} (--regret)") from None
    print(said)
    return 0 if is_small else 1


@dataclass(slots=True)
class _Tuning:
    """One command: its jobs, its table, and where it is."""

    options: Options
    given: Sequence[str]
    seams: Seams
    jobs: tuple[PreparedJob, ...] = field(init=False)
    gpu: str = field(init=False)

    def __post_init__(self) -> None:
        with hydra_over(self.options.config_dir):
            composed = compose_jobs(self.options.overrides, self.options.multirun)
        self.jobs = prepare(
            self.given, [_searchable(one, self.seams.machine) for one in composed], machine=self.seams.machine
        ).jobs
        fabrics = {job.request.fabric for job in self.jobs}
        if len(fabrics) > 1:
            raise RequestError(
                "a table is of one type of GPU, the sweep has several fabrics (fabric), leave it out of it"
            )
        fabric = next(iter(fabrics))
        own = fabric.gpu.name if fabric.gpu is not None else SIMULATED
        self.gpu = own if fabric.simulated else self.seams.gpu() or "unknown GPU"

    @property
    def is_simulated(self) -> bool:
        return self.jobs[0].request.fabric.simulated

    @property
    def place(self) -> Path:
        """Where the table is or will be."""
        return self.options.output or Path(f"tuned-{slug_of(self.gpu)}.json")

    def run(self) -> int:
        """Search, run the finalists, write the table."""
        earlier = self._earlier_table()
        state = State(self.place.with_name(self.place.name + SUFFIX), self._key())
        points = list(_points(self.jobs))
        self._say_begin(state, points)
        try:
            found = self._search(points, state)
            folder = self._finals(points, found)
        except KeyboardInterrupt as interrupt:
            print(f"symlab: interrupted; the same command goes on with {state.path}", file=sys.stderr, flush=True)
            return exit_code_of(interrupt)
        entries = _entries(points, found, kept_in(folder))
        if not entries:
            raise RequestError(f"no finalist passed, see {folder} (algorithms), nothing is written")
        print(_text(entries, INSTRUCTIONS if self.is_simulated else MICROSECONDS))
        if self.is_simulated and not self.options.simulated:
            print(
                "searched in the simulator: figures are executed instructions, not times; no table is written "
                "(--simulated writes one, for simulated runs only)"
            )
        else:
            self._write(earlier, entries, folder)
        state.remove()
        return 0 if len(entries) == len(points) else 1

    def measure_unseen(self) -> int:
        """Run the table's choices at sizes that were not searched, beside all contestants, and print the regret."""
        table = self._earlier_table()
        if table is None:
            raise RequestError(f"there is no table {self.place} (-o), search one first: symlab tune -o {self.place}")
        with hydra_over(self.options.config_dir):
            composed = [self._unseen(job, table, number) for number, job in enumerate(self.jobs)]
        folder = self._ran(composed)
        print(f"records: {folder}")
        if self.is_simulated:
            print("the simulator has no clock: there are no times, so there is no regret")
            return 0
        return _show_regret([folder])

    def _unseen(self, job: PreparedJob, table: Table, number: int) -> ComposedJob:
        """The job of sizes that were not searched. RequestError for an op that the table does not have."""
        op = job.request.op
        own = [one for one in table.entries if one.op == op]
        if not own:
            raise RequestError(f"{self.place} has no entry of {op} (op), search it first: symlab tune op={op}")
        low, high = min(one.size_bytes for one in own), max(one.size_bytes for one in own)
        sizes = unseen_sizes(low, high, 128)
        if not sizes:
            raise RequestError(
                f"{self.place} has no sizes of {op} that were not searched, between {format_bytes(low)} and "
                f"{format_bytes(high)} (--unseen), search a range of sizes first: symlab tune op={op} -o {self.place}"
            )
        names = dict.fromkeys([BEST, *job.request.algorithms, *(one.choice.name for one in own)])
        return self._composed(job, list(names), sizes, number, [f"tuned='{self.place}'"], self._baselines(job))

    # The search

    def _search(self, points: Sequence[Point], state: State) -> list[dict[str, Any]]:
        """Return what the search of each point found."""
        found: list[dict[str, Any]] = []
        begun = self.seams.now()
        limit_s = self.options.seconds
        before: dict[tuple[object, ...], Sequence[str]] = {}
        bench = _OpenBench(self.options, self.seams)
        with closing(bench):
            for number, point in enumerate(points):
                if (point.job is not points[number - 1].job or not number) and state.found(points[-1].case.id) is None:
                    bench.compile_ahead(point.job, [one.case for one in points if one.job is point.job])
                key = (point.case.op, point.case.dtype, point.case.world_size, point.case.placement)
                one = state.found(point.case.id)
                if one is None:
                    bench.wait_for(point)
                    until = None
                    if limit_s is not None:
                        left_s = limit_s - (self.seams.now() - begun)
                        until = self.seams.now() + max(left_s, 0) / (len(points) - number)
                    one = self._searched(point, bench, state, before.get(key, ()), until)
                    state.finish(point.case.id, one)
                    print(_line(number + 1, len(points), point, one), flush=True)
                before[key] = one["best"]
                found.append(one)
        return found

    def _searched(
        self, point: Point, bench: _OpenBench, state: State, earlier: Sequence[str], until: float | None
    ) -> dict[str, Any]:
        """Search one point. RequestError if no candidate passed."""
        place, traits = bench.at(point.job)
        search = Search(
            bench=place,
            candidates=Candidates(point.case, point.job.request.algorithms, traits),
            kept=state.rungs(point.case.id),
            save=lambda: _saved(state),
            is_late=lambda: until is not None and self.seams.now() >= until,
            say=lambda line: print(f"  {point.label}: {line}", file=sys.stderr, flush=True),
        )
        try:
            done = search.run(earlier)
        except RequestError:
            raise
        except ValueError as error:
            raise RequestError(f"{point.label}: {error} (algorithms, sizes)") from error
        return {"best": list(done.best), "timed": done.timed, "failed": len(done.failed), "left_out": done.left_out}

    def _key(self) -> dict[str, Any]:
        """What a search must have in common with what goes on with it."""
        return {
            "gpu": self.gpu,
            "kernels": source_digests(CONF.parent)["kernels"],
            "jobs": [
                {
                    "algorithms": list(job.request.algorithms),
                    "timing": {name: str(value) for name, value in dataclasses.asdict(job.request.timing).items()},
                    "fabric": str(job.request.fabric.name),
                    "multicast": job.request.fabric.multicast,
                }
                for job in self.jobs
            ],
        }

    # The finalists

    def _finals(self, points: Sequence[Point], found: Sequence[Mapping[str, Any]]) -> Path:
        """Run the finalists of each point side by side with those of the sizes next to it, by which it is known where
        one choice is to follow another; the folder of their records."""
        composed = []
        with hydra_over(self.options.config_dir):
            for number, point in enumerate(points):
                names, place = _finalists(points, found, number), f"placement={point.case.placement}"
                composed.append(self._composed(point.job, names, [point.case.size_bytes], number, [place]))
        return self._ran(composed)

    def _composed(
        self,
        job: PreparedJob,
        names: Sequence[str],
        sizes: Sequence[int],
        number: int,
        more: Sequence[str] = (),
        baselines: str = "none",
    ) -> ComposedJob:
        """A job of the same settings with other algorithms and sizes. Inside hydra_over."""
        own = {one.lstrip("+~").partition("=")[0].partition(".")[0] for one in more}
        lines = [line for line in job.composed.overrides if _key_of(line) not in (*OURS, "baselines", *own)]
        lines += [
            f"algorithms=[{','.join(names)}]",
            f"sizes=[{','.join(map(str, sizes))}]",
            f"baselines={baselines}",
            *more,
        ]
        given = [line.lstrip("+~").partition("=")[0] for line in job.composed.overrides]
        if not any(key.partition(".")[0] == "track" for key in given):
            lines.append("track=none")
        if "timing.limit" not in given:
            lines.append("timing.limit=none")
        (composed,) = compose_jobs(lines, False)
        return dataclasses.replace(composed, number=number)

    def _baselines(self, job: PreparedJob) -> str:
        """The baselines that the command line asks for; else all that there are, none simulated."""
        asked = [line.partition("=")[2] for line in job.composed.overrides if _key_of(line) == "baselines"]
        return asked[-1] if asked else "auto"

    def _ran(self, composed: Sequence[ComposedJob]) -> Path:
        ran = self.seams.finals or run_quietly
        return ran(("tune", *self.given), composed)

    # The table

    def _earlier_table(self) -> Table | None:
        """The table that is there already, of the same GPUs and unit. RequestError for another one."""
        if not self.place.absolute().parent.is_dir():
            raise RequestError(
                f"there is no folder {self.place.absolute().parent} (-o), give a file in one that exists"
            )
        if self.place.is_dir():
            raise RequestError(f"{self.place} is a folder (-o), give a file")
        if not self.place.exists():
            return None
        try:
            table = read(self.place)
        except ValueError as error:
            raise RequestError(f"{error} (-o)") from None
        if table.gpu != self.gpu or table.is_simulated != self.is_simulated:
            kind = "in the simulator" if table.is_simulated else "by GPUs' clocks"
            raise RequestError(
                f"{self.place} is of {table.gpu}, measured {kind}, and this search is of {self.gpu} (-o), "
                "give another file"
            )
        return table

    def _write(self, earlier: Table | None, entries: Sequence[Entry], folder: Path) -> None:
        kept = kept_in(folder)
        first = next(iter(kept.values()))[0].record
        fabric = first.fabric
        assert fabric is not None
        commit = str((first.environment.git or {}).get("commit") or "unknown")
        made = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": commit,
            "records": folder.name,
            "with": shlex.join(["symlab", "tune", *self.given])[:200] or "symlab tune",
        }
        table = Table(
            gpu=self.gpu,
            arch=fabric.arch,
            unit=INSTRUCTIONS if self.is_simulated else MICROSECONDS,
            made=made,
            entries=merged(earlier.entries if earlier is not None else (), entries),
        )
        written = table.text()
        try:
            with replacing(self.place) as beside:
                beside.write_text(written, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"{self.place}: {error.strerror} (-o), give a file that can be written") from None
        print(f"table: {self.place} ({counted(len(table.entries), 'choice')}, {digest_of(written)})")
        print(f"records of the finalists: {folder}")
        print(f"use it with: symlab run algorithms=best tuned={shlex.quote(str(self.place))} ..")

    def _say_begin(self, state: State, points: Sequence[Point]) -> None:
        where = "in the simulator, by executed instructions" if self.is_simulated else f"on {self.gpu}"
        print(f"symlab tune: {counted(len(points), 'case')} {where}; table: {self.place}", flush=True)
        if state.note:
            print(f"symlab: {state.note}", file=sys.stderr, flush=True)
        elif state.is_begun:
            done = sum(state.found(point.case.id) is not None for point in points)
            print(f"going on with {state.path}: {done} of {counted(len(points), 'case')} searched", flush=True)


class _OpenBench:
    """The bench of the job that is searched now; another job's world takes its place."""

    def __init__(self, options: Options, seams: Seams) -> None:
        self._options = options
        self._seams = seams
        self._key: object = None
        self._worlds: Worlds | None = None
        self._compiler: Compiler | None = None
        self._bench: Bench | None = None
        self._traits: Traits | None = None

    def at(self, job: PreparedJob) -> tuple[Bench, Traits]:
        """Return the bench of a job, and what its fabric can do."""
        from runner.tune.bench import DeviceBench, SimulatedBench, Worlds

        request = job.request
        if self._key != (request.fabric, request.world_size, request.timing):
            self._close_world()
            self._compiler = self._compiler or Compiler(request.cache_dir, self._processes(request))
            make = self._seams.worlds or (lambda asked, say: Worlds(asked, say))
            self._worlds = make(request, lambda line: print(line, file=sys.stderr, flush=True))
            self._key = (request.fabric, request.world_size, request.timing)
            self._traits = self._worlds.traits()
            usual = SimulatedBench if request.fabric.simulated else DeviceBench
            self._bench = (self._seams.bench or usual)(self._worlds, request, self._compiler)
        assert self._bench is not None
        assert self._traits is not None
        return self._bench, self._traits

    def compile_ahead(self, job: PreparedJob, cases: Sequence[Case]) -> None:
        """Begin to compile what the searches of a job's cases try first, while others are measured."""
        _, traits = self.at(job)
        assert self._compiler is not None
        for case in cases:
            self._compiler.begin(Candidates(case, job.request.algorithms, traits).first(), traits.arch)

    def wait_for(self, point: Point) -> None:
        """Wait until what the search of a point tries first is compiled, which counts as none of its time."""
        _, traits = self.at(point.job)
        assert self._compiler is not None
        self._compiler.wait(Candidates(point.case, point.job.request.algorithms, traits).first(), traits.arch)

    def _processes(self, request: ResolvedRequest) -> int:
        if self._options.processes is not None:
            return self._options.processes
        return 1 if request.fabric.simulated else processors()

    def _close_world(self) -> None:
        worlds, self._worlds = self._worlds, None
        if worlds is not None:
            worlds.close()

    def close(self) -> None:
        """End the world and the processes that compile."""
        self._close_world()
        if self._compiler is not None:
            self._compiler.close()


def _searchable(job: ComposedJob, machine: Callable[[], HostOffer]) -> ComposedJob:
    """A job as it is searched: our own kernels, and sizes of a search where none are given. RequestError for one that
    can't be searched."""
    request = job.request
    if request.custom is not None:
        raise RequestError("op=custom has one kernel (op), there is nothing to search")
    if not request.check:
        raise RequestError("a search checks every result (check=false), leave it out")
    if request.stress != NO_STRESS:
        raise RequestError(f"a search runs plain launches (stress={request.stress}), leave it out")
    if request.timing.mode == TimingMode.none:
        raise RequestError("a search needs times (timing.mode=none), give graph or eager")
    names = request.algorithms if not isinstance(request.algorithms, str) else ()
    known = [spec.algorithm for spec in SPECS if spec.op == request.op]
    for name in names:
        if name not in known:
            raise RequestError(
                f"{name} is no algorithm of {request.op} to be searched (algorithms), give some of {', '.join(known)}"
            )
    changes: dict[str, Any] = {"baselines": ()}
    if not request.sizes_given and request.op != "barrier":
        is_simulated = resolve(request.fabric, request.world_size, machine)[0].simulated
        changes |= {"sizes_bytes": SIMULATED_SIZES if is_simulated else SIZES, "sizes_given": True}
    return dataclasses.replace(job, request=dataclasses.replace(request, **changes))


def _points(jobs: Sequence[PreparedJob]) -> Iterator[Point]:
    """The cases to search, each once: by job, and by size."""
    seen = set()
    for job in jobs:
        for case in sorted(job.cases, key=lambda one: one.size_bytes):
            wanted = dataclasses.replace(case, algorithm=BEST)
            if wanted not in seen and wanted.size_bytes:
                seen.add(wanted)
                yield Point(job, wanted)


def _finalists(points: Sequence[Point], found: Sequence[Mapping[str, Any]], number: int) -> list[str]:
    """The names that are run at a point: its own best, and those of the next smaller and the next larger size."""
    own = points[number].case
    names = dict.fromkeys(found[number]["best"][:OWN_FINALISTS])
    for beside in (number - 1, number + 1):
        if not 0 <= beside < len(points) or dataclasses.replace(points[beside].case, size_bytes=own.size_bytes) != own:
            continue
        for name in found[beside]["best"][:OWN_FINALISTS]:
            most = find(f"{own.op}/{name}").max_size_bytes
            if most is None or own.size_bytes <= most:
                names[name] = None
    return list(names)


def _entries(
    points: Sequence[Point], found: Sequence[Mapping[str, Any]], kept: Mapping[int, Sequence[Kept]]
) -> list[Entry]:
    """The entries of the points of which a finalist passed."""
    entries, measured = [], []
    for number, (point, one) in enumerate(zip(points, found, strict=True)):
        searched = Searched(one["timed"], one["failed"], one["left_out"])
        entry = entry_of(point.case, kept.get(number, ()), searched)
        if entry is None:
            print(f"symlab: {point.label}: no finalist passed, so that it has no entry", file=sys.stderr, flush=True)
        else:
            entries.append(entry)
            measured.append(kept.get(number, ()))
    return crossed(entries, measured)


def _saved(state: State) -> None:
    try:
        state.save()
    except OSError as error:
        raise RequestError(
            f"{state.path}: {error.strerror} (-o), give a table in a folder that can be written"
        ) from None


def _key_of(line: str) -> str:
    """The key of an override, of a section its name: "sizes" of "sizes.min=1K"."""
    return line.lstrip("+~").partition("=")[0].partition(".")[0]


def _line(number: int, count: int, point: Point, found: Mapping[str, Any]) -> str:
    more = "".join(
        f", {found[key]} {words}" for key, words in (("failed", "failed"), ("left_out", "not tried")) if found[key]
    )
    return f"[{number}/{count}] {point.label}: {found['best'][0]} of {counted(found['timed'], 'candidate')}{more}"


def _text(entries: Sequence[Entry], unit: str) -> str:
    """The new entries as a table."""
    lines = []
    for one in entries:
        other = one.runner_up
        lines.append(
            Line(
                {
                    "op": one.op,
                    "dtype": one.dtype,
                    "ranks": str(one.ranks),
                    "size": format_bytes(one.size_bytes),
                    "choice": one.choice.name,
                    unit: f"{one.choice.value:.6g}",
                    "interval": f"{one.choice.low:.4g} to {one.choice.high:.4g}",
                    "runner-up": other.name if other is not None else "-",
                    "its": f"{other.value:.6g}" if other is not None else "-",
                    "timed": str(one.searched.timed),
                }
            )
        )
    columns = tuple(lines[0].cells)
    numeric = frozenset({"ranks", "size", unit, "its", "timed"})
    return text([Sheet("choices", columns, (tuple(lines),), numeric)], [], room_here()).rstrip()
