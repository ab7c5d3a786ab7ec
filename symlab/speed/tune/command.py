"""symlab tune: search what is best for each size of each job, keep records of the finalists, write a table of choices.

Three parts: the search, which can be cut short and goes on; then one ordinary command that runs the finalists of every
size side by side, with records like any other's; then the table, whose figures are those of these records. The search
asks the model which candidates to measure (model_first.py), or measures all of them by halving (search.py).
"""

from __future__ import annotations

import dataclasses
import functools
import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cases.case import Counts
from cases.stress import NO_STRESS
from kernels.catalogue import SPECS
from memory.atomic_file import replacing
from reports.table.sheet import Line, Sheet, room_here, text
from reports.table.text import counted
from runner.command.plan import PreparedJob, prepare
from runner.command.ready import run_quietly
from runner.environment.repository import source_digests
from runner.interrupt import exit_code_of
from runner.request.chooser import BEST
from runner.request.compose import ComposedJob, compose_jobs, hydra_over
from runner.request.experiments import CONF
from runner.request.overrides import config_folders
from runner.request.schema import TimingMode
from runner.request.sizes import format_bytes
from runner.request_error import RequestError
from runner.world.fabrics import resolve
from symlab.speed.predict.evidence import grouped
from symlab.speed.tune.candidates import Candidates
from symlab.speed.tune.entries import Kept, kept_in, merged, ranges_in, series_of
from symlab.speed.tune.finals import ROUNDS, Final, Point, crossings, finals_of, parts, points_of
from symlab.speed.tune.model_first import MEASURED, Model, Ranking, model_for, rankings
from symlab.speed.tune.open_bench import OpenBench, Seams
from symlab.speed.tune.regret import WORLDS, regrets, report, unseen_sizes
from symlab.speed.tune.sample import SAMPLE_TIMING, drawn, shares
from symlab.speed.tune.search import Found, NothingPassed, Search
from symlab.speed.tune.state import State, searched_in, state_key
from symlab.speed.tune.verb import Options as Options
from symlab.speed.tuned.table import (
    EXHAUSTIVE,
    MODEL,
    UNIT,
    Entry,
    Guess,
    Table,
    digest_of,
    read,
    slug_of,
)

SUFFIX = ".search"
"""What the name of the file with the search so far has behind that of the table."""

SIZES = tuple(1 << power for power in range(10, 29, 2))
"""Sizes that are searched where none are given: 1K, 4K, .. 256M."""

MODELS_SHARE = 0.5
"""The most of --seconds that the model takes, where --model-seconds does not say."""

OURS = ("algorithms", "sizes")
"""Keys that the jobs of finalists have values of their own for."""


def tune(options: Options, given: Sequence[str] = (), seams: Seams | None = None) -> int:
    """Do what a command line asks for. Returns the exit code. RequestError for a wrong request."""
    if options.regret:
        return _show_regret(options.regret, WORLDS)
    tuning = _Tuning(options, given, seams or Seams())
    if options.sample:
        return tuning.measure_sample()
    return tuning.measure_unseen() if options.unseen else tuning.run()


def _show_regret(places: Sequence[Path], least_worlds: int) -> int:
    from reports.record.bundle import read as read_records

    try:
        said, is_small = report(regrets(read_records(places)), least_worlds)
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
    begun: float = field(init=False)
    model: Model | None = field(init=False, default=None)
    no_model: str = field(init=False, default="")
    """Why the model ranks nothing, where --exhaustive does not say so."""

    def __post_init__(self) -> None:
        self.begun = self.seams.now()
        with hydra_over(self.options.config_dir):
            composed = compose_jobs(self.options.overrides, self.options.multirun)
            folders = config_folders()
        jobs = [_searchable(one) for one in composed]
        for request in (job.request for job in jobs):
            if resolve(request.fabric, request.world_size, self.seams.machine)[0].simulated:
                raise RequestError(
                    "choices are measured on GPUs, and this would be simulated (fabric), run it where there are GPUs "
                    "and the gpu extra"
                )
        self.jobs = prepare(self.given, jobs, machine=self.seams.machine).jobs
        if len({job.request.fabric for job in self.jobs}) > 1:
            raise RequestError(
                "a table is of one type of GPU, the sweep has several fabrics (fabric), leave it out of it"
            )
        self.gpu = self.seams.gpu() or "unknown GPU"
        if not (self.options.unseen or self.options.sample):
            self._choose_way(folders)

    def _choose_way(self, folders: Sequence[Path]) -> None:
        """Decide whether the model ranks candidates first. RequestError if an option wants it to and it can't."""
        asked = "--model-seconds" if self.options.model_seconds is not None else "--gpu" if self.options.gpu else ""
        if self.options.exhaustive:
            if asked:
                raise RequestError(f"--exhaustive asks no model ({asked}), leave one of them out")
            return
        try:
            requests = [job.composed.request for job in self.jobs]
            self.model = model_for(requests, self.gpu, self.options.gpu, folders)
        except RequestError as error:
            if asked:
                raise
            self.no_model = str(error)

    @property
    def place(self) -> Path:
        """Where the table is or will be."""
        return self.options.output or Path(f"tuned-{slug_of(self.gpu)}.json")

    def run(self) -> int:
        """Search, run the finalists, write the table."""
        earlier = self._earlier_table()
        place = self.place.with_name(self.place.name + SUFFIX)
        state = State(place, self._key(), lambda: self.seams.now() - self.begun)
        points = list(points_of(self.jobs))
        self._say_begin(state, points)
        try:
            finals, more = [], finals_of(points, self._search(points, state))
            folders: list[Path] = []
            kept: dict[int, list[Kept]] = {}
            made: list[Entry | None] = []
            for _ in range(1 + ROUNDS):
                finals += more
                ran = self._finals(finals, len(finals) - len(more), state)
                folders += ran
                kept |= {number: records for folder in ran for number, records in kept_in(folder).items()}
                made = _entries(finals, kept, (state.earlier_s + self.seams.now() - self.begun) / len(finals))
                if not (more := crossings(finals, made)):
                    break
        except KeyboardInterrupt as interrupt:
            print(f"symlab: interrupted; the same command goes on with {state.path}", file=sys.stderr, flush=True)
            return exit_code_of(interrupt)
        for final, entry in zip(finals, made, strict=True):
            if entry is None:
                text = f"{final.point.label}: no finalist passed, so that it has no entry"
                print(f"symlab: {text}", file=sys.stderr, flush=True)
        entries = sorted(filter(None, made), key=lambda one: (one.key, one.size_bytes))
        if not entries:
            raise RequestError(f"no finalist passed, see {folders[0]} (algorithms), nothing is written")
        print(_text(entries))
        self._write(earlier, entries, folders, kept)
        state.remove()
        return 0 if len(entries) == len(finals) else 1

    def measure_unseen(self) -> int:
        """Run the table's choices at sizes that were not searched, beside all contestants, and print the regret."""
        table = self._earlier_table()
        if table is None:
            raise RequestError(f"there is no table {self.place} (-o), search one first: symlab tune -o {self.place}")
        with hydra_over(self.options.config_dir):
            composed = [self._unseen(job, table, number) for number, job in enumerate(self.jobs)]
        folder = self._ran(composed)
        print(f"records: {folder}")
        return _show_regret([folder], 1)

    def measure_sample(self) -> int:
        """Run random tunings beside the catalogue's own, some at each size, for a score of the model."""
        composed = []
        with closing(OpenBench(self.seams, self.options.processes)) as bench:
            points = list(points_of(self.jobs))
            places = [Candidates(one.case, one.job.request.algorithms, bench.at(one.job)[1]) for one in points]
        counts = shares(self.options.sample or 0, len(points))
        with hydra_over(self.options.config_dir):
            for number, (point, place, count) in enumerate(zip(points, places, counts, strict=True)):
                names = [one.algorithm for one in (*place.own(), *drawn(place, count, self.options.seed))]
                more = [f"placement={point.case.placement}", *_unless(point.job, SAMPLE_TIMING)]
                composed.append(self._composed(point.job, names, [point.case.size_bytes], number, more))
        print(f"records: {self._ran(composed)}")
        return 0

    def _unseen(self, job: PreparedJob, table: Table, number: int) -> ComposedJob:
        """The job of sizes that were not searched. RequestError for an op that the table does not have."""
        op = job.request.op
        ranks = job.request.world_size
        own = [one for one in table.entries if (one.op, one.ranks) == (op, ranks)]
        if not own:
            raise RequestError(
                f"{self.place} has no entry of {op} on {ranks} (op, world_size), search it first: symlab tune op={op} "
                f"world_size={ranks}"
            )
        low, high = min(one.size_bytes for one in own), max(one.size_bytes for one in own)
        sizes = unseen_sizes(low, high, 128)
        if not sizes:
            raise RequestError(
                f"{self.place} has no sizes of {op} that were not searched, between {format_bytes(low)} and "
                f"{format_bytes(high)} (--unseen), search a range of sizes first: symlab tune op={op} -o {self.place}"
            )
        names = dict.fromkeys([BEST, *job.request.algorithms, *(one.choice.name for one in own)])
        more = [f"tuned='{self.place}'", *_unless(job, FINALS_USUAL)]
        return self._composed(job, list(names), sizes, number, more, self._baselines(job))

    # The search

    def _search(self, points: Sequence[Point], state: State) -> list[dict[str, Any]]:
        """Return what the search of each point found."""
        found: list[dict[str, Any]] = []
        before: dict[tuple[object, ...], Sequence[str]] = {}
        bench = OpenBench(self.seams, self.options.processes)
        with closing(bench):
            ranked = self._ranked([one for one in points if state.found(one.case.id) is None], bench)
            for number, point in enumerate(points):
                key = point.series
                one = state.found(point.case.id)
                if one is None:
                    if self.model is None:
                        self._compile(points, number, bench)
                    until = None
                    if self.options.seconds is not None:
                        until = self.seams.now() + max(self._left_s(), 0) / (len(points) - number)
                    ranking = ranked.get(point.case.id)
                    one = self._searched(point, bench, state, before.get(key, ()), until, ranking)
                    state.finish(point.case.id, one)
                    print(_line(number + 1, len(points), point, one), flush=True)
                before[key] = one["best"]
                found.append(one)
        return found

    def _left_s(self) -> float:
        """Seconds that are left of those that the command may take for its search."""
        limit_s = self.options.seconds
        return math.inf if limit_s is None else limit_s - (self.seams.now() - self.begun)

    def _compile(self, points: Sequence[Point], number: int, bench: OpenBench) -> None:
        """Compile what the search of a point tries first, and begin with the other points of its job."""
        point = points[number]
        if not number or point.job is not points[number - 1].job:
            bench.compile_ahead(point.job, [one.case for one in points[number:] if one.job is point.job])
        bench.wait_for(point.job, point.case)

    def _ranked(self, points: Sequence[Point], bench: OpenBench) -> dict[str, Ranking]:
        """Return what the model says of the candidates of points, by the id of their case; nothing without a model."""
        if self.model is None or not points:
            return {}
        begun, limit_s = self.seams.now(), self.options.model_seconds
        if limit_s is None:
            limit_s = self._left_s() * MODELS_SHARE
        asked = []
        for point in points:
            _, traits = bench.at(point.job)
            asked.append(Candidates(point.case, point.job.request.algorithms, traits))
        profiler = self.seams.profiles(points[0].job.request.cache_dir, traits.arch, bench.processes)
        try:
            left_s = functools.partial(self._left_of, begun + limit_s)
            found = rankings(asked, self.model, profiler, left_s, lambda line: print(line, flush=True))
        finally:
            profiler.close()
        took_s = self.seams.now() - begun
        ranked, left_out = (sum(values) for values in zip(*((len(one.us), one.left_out) for one in found), strict=True))
        late = f"; its time ended (--model-seconds, --seconds): {left_out} not predicted" if left_out else ""
        print(f"model of {self.model.known.name}: {ranked} predictions in {took_s:.0f} s{late}", flush=True)
        return {point.case.id: one for point, one in zip(points, found, strict=True)}

    def _left_of(self, until: float) -> float:
        return max(until - self.seams.now(), 0.0)

    def _searched(
        self,
        point: Point,
        bench: OpenBench,
        state: State,
        earlier: Sequence[str],
        until: float | None,
        ranking: Ranking | None,
    ) -> dict[str, Any]:
        """Search one point: those that the model ranks best, if it ranked any, else all. RequestError if no candidate
        passed."""
        place, traits = bench.at(point.job)
        candidates = functools.partial(Candidates, point.case, point.job.request.algorithms, traits)
        own = [one.algorithm for one in candidates().own()]
        search = Search(
            bench=place,
            candidates=candidates(),
            kept=state.rungs(point.case.id),
            save=lambda: _saved(state),
            is_late=lambda: until is not None and self.seams.now() >= until,
            say=lambda line: print(f"  {point.label}: {line}", file=sys.stderr, flush=True),
        )
        guesses = ranking.best(point.case) if ranking is not None else []
        done = _among(search, own, guesses, ranking) if ranking is not None else None
        how, model = MODEL, self.model.name if self.model is not None else ""
        if ranking is None or done is None:
            how, model, ranking, guesses = EXHAUSTIVE, "", Ranking(), []
            try:
                done = search.run(earlier)
            except NothingPassed as error:
                raise RequestError(f"{point.label}: {error} (algorithms, sizes)") from error
        own = [name for name in own if name not in done.failed]
        return {
            "best": list(done.best),
            "own": own,
            "timed": done.timed,
            "failed": len(done.failed) + len(ranking.failed),
            "left_out": done.left_out + ranking.left_out,
            "how": how,
            "model": model,
            "ranked": len(ranking.us),
            "predicted": [[one.name, one.us] for one in guesses],
        }

    def _key(self) -> dict[str, Any]:
        """What a search must have in common with what goes on with it."""
        return {
            "gpu": self.gpu,
            "model": self.model.name if self.model is not None else "",
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

    def _finals(self, finals: Sequence[Final], begin: int, state: State) -> list[Path]:
        """Run the finals from a place on, in some commands; the folders of their records. Of those that a command ran
        which was interrupted later the records are taken."""
        folders = []
        for part in parts(begin, len(finals)):
            key = state_key([[finals[at].point.case.id, list(finals[at].names)] for at in part])
            folder = Path(state.finals.get(key, ""))
            if not (key in state.finals and folder.is_dir()):
                with hydra_over(self.options.config_dir):
                    composed = [self._final(finals[at], at) for at in part]
                folder = self._ran(composed).absolute()
                state.finals[key] = str(folder)
                _saved(state)
            folders.append(folder)
        return folders

    def _final(self, final: Final, number: int) -> ComposedJob:
        """The job of a final. Inside hydra_over."""
        job, case = final.point.job, final.point.case
        more = [f"placement={case.placement}", *_unless(job, FINALS_USUAL)]
        libraries = self._baselines(job) if final.is_searched else "none"
        return self._composed(job, final.names, [case.size_bytes], number, more, libraries)

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
        own = {one.partition("=")[0] for one in more}
        given = {line: line.lstrip("+~").partition("=")[0] for line in job.composed.overrides}
        lines = [line for line, key in given.items() if key not in own and _key_of(line) not in (*OURS, "baselines")]
        lines += [
            f"algorithms=[{','.join(names)}]",
            f"sizes=[{','.join(map(str, sizes))}]",
            f"baselines={baselines}",
            *more,
        ]
        if not any(key.partition(".")[0] == "track" for key in given.values()):
            lines.append("track=none")
        if "timing.limit" not in given.values():
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
        if table.gpu != self.gpu:
            raise RequestError(
                f"{self.place} is of {table.gpu}, and this search is of {self.gpu} (-o), give another file"
            )
        return table

    def _write(
        self,
        earlier: Table | None,
        entries: Sequence[Entry],
        folders: Sequence[Path],
        kept: Mapping[int, Sequence[Kept]],
    ) -> None:
        first = next(iter(kept.values()))[0].record
        fabric = first.fabric
        assert fabric is not None
        commit = str((first.environment.git or {}).get("commit") or "unknown")
        made = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "commit": commit,
            "records": ", ".join(folder.name for folder in folders)[:200],
            "with": shlex.join(["symlab", "tune", *self.given])[:200] or "symlab tune",
        }
        table = Table(
            gpu=self.gpu,
            arch=fabric.arch,
            made=made,
            entries=merged(earlier.entries if earlier is not None else (), entries),
        )
        written = table.text()
        try:
            with replacing(self.place) as beside:
                beside.write_text(written, encoding="utf-8")
        except OSError as error:
            raise RequestError(f"{self.place}: {error.strerror} (-o), give a file that can be written") from None
        ranges = counted(ranges_in(table.entries), "range")
        print(f"table: {self.place} ({counted(len(table.entries), 'choice')}, {ranges}, {digest_of(written)})")
        print(f"records of the finalists: {', '.join(map(str, folders))}")
        print(f"use it with: symlab run algorithms=best tuned={shlex.quote(str(self.place))} ..")

    def _say_begin(self, state: State, points: Sequence[Point]) -> None:
        print(f"symlab tune: {counted(len(points), 'case')} on {self.gpu}; table: {self.place}", flush=True)
        if self.model is not None:
            of = self.model.known.name
            print(
                f"the model of {of} ranks the candidates; of each size the best {MEASURED} and the catalogue's own "
                "tunings are measured"
            )
        elif self.no_model:
            print(f"all candidates are measured: {self.no_model}")
        if state.note:
            print(f"symlab: {state.note}", file=sys.stderr, flush=True)
        elif state.is_begun:
            done = sum(state.found(point.case.id) is not None for point in points)
            print(f"going on with {state.path}: {done} of {counted(len(points), 'case')} searched", flush=True)


def _searchable(job: ComposedJob) -> ComposedJob:
    """A job as it is searched: our own kernels, and sizes of a search where none are given. RequestError for one that
    can't be searched."""
    request = job.request
    if request.custom is not None:
        raise RequestError("op=custom has one kernel (op), there is nothing to search")
    if not request.check:
        raise RequestError("a search checks every result (check=false), leave it out")
    if request.stress != NO_STRESS:
        raise RequestError(f"a search runs plain launches (stress={request.stress}), leave it out")
    if request.counts != Counts.uniform:
        raise RequestError(f"a table knows no counts (counts={request.counts.value}), leave it at uniform")
    if request.timing.mode == TimingMode.none:
        raise RequestError("a search needs times (timing.mode=none), give graph or eager")
    if request.timing.predict:
        raise RequestError(
            "a search asks the model itself, and its records hold no predictions (timing.predict), leave it out"
        )
    names = request.algorithms if not isinstance(request.algorithms, str) else ()
    known = [spec.algorithm for spec in SPECS if spec.op == request.op]
    for name in names:
        if ":" in name:
            raise RequestError(
                f"{name} is no kernel of the project, which a table has alone (algorithms), measure the parameters of "
                "an entry by symlab run algorithms=[FILE.yaml:NAME@all]"
            )
        if name not in known:
            raise RequestError(
                f"{name} is no algorithm of {request.op} to be searched (algorithms), give some of {', '.join(known)}"
            )
    changes: dict[str, Any] = {"baselines": ()}
    if not request.sizes_given and request.op != "barrier":
        changes |= {"sizes_bytes": SIZES, "sizes_given": True}
    return dataclasses.replace(job, request=dataclasses.replace(request, **changes))


def _among(search: Search, own: Sequence[str], guesses: Sequence[Guess], ranking: Ranking) -> Found | None:
    """Search the catalogue's own tunings, those that the model ranks best, and those that only the simulator failed
    with; None, with the reason said, if all candidates have to be measured."""
    if not (ranking.us or ranking.unpredicted):
        late = " in time" if ranking.left_out else ""
        search.say(f"nothing was predicted{late}, so all candidates are measured")
        return None
    try:
        return search.among(dict.fromkeys([*own, *(one.name for one in guesses), *ranking.unpredicted]))
    except NothingPassed as error:
        search.say(f"none of the {MODEL}'s best passed, so all candidates are measured: {error}")
        return None


def _entries(finals: Sequence[Final], kept: Mapping[int, Sequence[Kept]], seconds: float) -> list[Entry | None]:
    """The entry of each final; None for one of which no finalist passed. seconds: what finding took, of each."""
    entries: list[Entry | None] = [None] * len(finals)
    for places in grouped(range(len(finals)), lambda place: finals[place].point.series):
        cases = [finals[place].point.case for place in places]
        found = [searched_in(finals[place].found, seconds) for place in places]
        for place, one in zip(places, series_of(cases, [kept.get(at, ()) for at in places], found), strict=True):
            entries[place] = one
    return entries


FINALS_USUAL = {"launches": 1, "deadline_s": 10, "timing.samples": 30}
"""What finals take unless it is given: results were checked before, a library that does not end costs 10 s (NVSHMEM's
all_to_all from 16M on 2 H200), and of the turns fifteen choose and fifteen judge."""


def _unless(job: PreparedJob, usual: Mapping[str, int]) -> list[str]:
    """Overrides for keys that a job's command line does not give."""
    given = {line.lstrip("+~").partition("=")[0] for line in job.composed.overrides}
    return [f"{key}={value}" for key, value in usual.items() if key not in given and "timing" not in given]


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
    of = f"{found['timed']} measured of {found['ranked']} predicted" if found["ranked"] else ""
    return f"[{number}/{count}] {point.label}: {found['best'][0]} of {of or counted(found['timed'], 'candidate')}{more}"


def _text(entries: Sequence[Entry]) -> str:
    """The new entries as a table."""
    lines = []
    for one in entries:
        other, library = one.runner_up, one.library
        lines.append(
            Line(
                {
                    "op": one.op,
                    "dtype": one.dtype,
                    "ranks": str(one.ranks),
                    "size": format_bytes(one.size_bytes),
                    "choice": one.choice.name,
                    UNIT: f"{one.choice.value:.6g}",
                    "interval": f"{one.choice.low:.4g} to {one.choice.high:.4g}",
                    "runner-up": other.name if other is not None else "-",
                    "its": f"{other.value:.6g}" if other is not None else "-",
                    "library": library.name if library is not None else "-",
                    "library's": f"{library.value:.6g}" if library is not None else "-",
                    "timed": str(one.searched.timed),
                    "found": one.searched.found(one.choice.name),
                }
            )
        )
    columns = tuple(lines[0].cells)
    numeric = frozenset({"ranks", "size", UNIT, "its", "library's", "timed"})
    return text([Sheet("choices", columns, (tuple(lines),), numeric)], [], room_here()).rstrip()
