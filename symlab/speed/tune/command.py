"""symlab tune: search what is best for each size of each job, keep records of the finalists, write a table of choices.

Three parts: the search, which can be cut short and goes on; then one ordinary command that runs the finalists of every
size side by side, with records like any other's; then the table, whose figures are those of these records. The search
asks the model which candidates to measure (model_first.py), or measures all of them by halving (search.py).
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from reports.table.text import counted
from runner.command.plan import PreparedJob
from runner.command.runnable_jobs import run_quietly
from runner.interrupt import exit_code_of
from runner.request.compose import ComposedJob, hydra_over
from runner.request.composer import Composer
from runner.request_error import RequestError
from symlab.speed.predict.profiles import Profiles
from symlab.speed.tune.entries import Kept, kept_in
from symlab.speed.tune.finals import ROUNDS, Final, Point, crossings, entries_of, finals_of, parts, points_of
from symlab.speed.tune.jobs import FINALS_USUAL, baselines_of, composed_as, key_of, prepared, unless
from symlab.speed.tune.model_first import MEASURED, Model, Ranking, model_for, rankings
from symlab.speed.tune.open_bench import OpenBench, Seams, candidates_of
from symlab.speed.tune.sample import SAMPLE_TIMING, drawn, shares
from symlab.speed.tune.search import Found, NothingPassed, Search
from symlab.speed.tune.state import PointFound, State, state_key
from symlab.speed.tune.unseen import show_regret, unseen
from symlab.speed.tune.verb import Options as Options
from symlab.speed.tune.written import earlier_table, refuse_project, text_of, write
from symlab.speed.tuned.table import EXHAUSTIVE, MODEL, Entry, Guess, Searched, slug_of

SUFFIX = ".search"
"""What the name of the file with the search so far has behind that of the table."""

MODELS_SHARE = 0.5
"""The most of --seconds that the model takes."""


def tune(options: Options, given: Sequence[str] = (), seams: Seams | None = None) -> int:
    """Do what a command line asks for. Returns the exit code. RequestError for a wrong request."""
    if options.regret:
        return show_regret(options.regret)
    tuning = _Tuning(options, given, seams or Seams())
    if options.sample:
        return tuning.measure_sample()
    return tuning.measure_unseen() if options.unseen else tuning.run()


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
        options = self.options
        with hydra_over(options.config_dir):
            self.jobs, folders = prepared(options.overrides, options.multirun, self.given, self.seams.machine)
        self.gpu = self.seams.gpu() or "unknown GPU"
        if not (self.options.unseen or self.options.sample):
            self._choose_way(folders)
        elif matmuls := [job.request.op for job in self.jobs if job.request.gemm is not None]:
            raise RequestError(f"{matmuls[0]} has no sizes to draw (--unseen, --sample), leave them out")

    def _choose_way(self, folders: Sequence[Path]) -> None:
        """Decide whether the model ranks candidates first."""
        if self.options.exhaustive:
            return
        try:
            requests = [job.composed.request for job in self.jobs]
            self.model = model_for(requests, self.gpu, folders)
        except RequestError as error:
            self.no_model = str(error)

    @property
    def place(self) -> Path:
        """Where the table is or will be."""
        return self.options.output or Path(f"tuned-{slug_of(self.gpu)}.json")

    def run(self) -> int:
        """Search, run the finalists, write the table."""
        if any(job.brought for job in self.jobs):
            refuse_project(self.place)
        earlier = earlier_table(self.place, self.gpu)
        place = self.place.with_name(self.place.name + SUFFIX)
        state = State(
            place,
            key_of(self.jobs, self.gpu, self.model.name if self.model is not None else ""),
            lambda: self.seams.now() - self.begun,
        )
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
                made = entries_of(finals, kept, (state.earlier_s + self.seams.now() - self.begun) / len(finals))
                if not (more := crossings(finals, made, kept)):
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
        print(text_of(entries))
        write(self.place, self.gpu, self.given, earlier, entries, folders, kept)
        state.remove()
        return 0 if len(entries) == len(finals) else 1

    def measure_unseen(self) -> int:
        """Run the table's choices at sizes that were not searched, beside all contestants, and print the regret."""
        table = earlier_table(self.place, self.gpu)
        if table is None:
            raise RequestError(f"there is no table {self.place} (-o), search one first: symlab tune -o {self.place}")
        with hydra_over(self.options.config_dir):
            composer, seed = Composer(), self.options.seed
            composed = [unseen(composer, job, table, self.place, number, seed) for number, job in enumerate(self.jobs)]
        folder = self._ran(composed)
        print(f"records: {folder}")
        return show_regret([folder], 1)

    def measure_sample(self) -> int:
        """Run random tunings beside the catalogue's own, some at each size, for a score of the model."""
        composed = []
        with closing(OpenBench(self.seams, self.options.processes)) as bench:
            points = list(points_of(self.jobs))
            places = [candidates_of(one.job, one.case, bench.at(one.job)[1]) for one in points]
        counts = shares(self.options.sample or 0, len(points))
        with hydra_over(self.options.config_dir):
            composer = Composer()
            for number, (point, place, count) in enumerate(zip(points, places, counts, strict=True)):
                names = [one.algorithm for one in (*place.own(), *drawn(place, count, self.options.seed))]
                more = [f"placement={point.case.placement}", *unless(point.job, SAMPLE_TIMING)]
                composed.append(composed_as(composer, point.job, names, [point.case.size_bytes], number, more))
        print(f"records: {self._ran(composed)}")
        return 0

    # The search

    def _search(self, points: Sequence[Point], state: State) -> list[PointFound]:
        """Return what the search of each point found."""
        found: list[PointFound] = []
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
                before[key] = one.best
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
        begun = self.seams.now()
        limit_s = self._left_s() * MODELS_SHARE
        asked = []
        for point in points:
            _, traits = bench.at(point.job)
            asked.append(candidates_of(point.job, point.case, traits))
        brought = {spec.name: spec for point in points for spec in point.job.specs}
        make = self.seams.profiles or functools.partial(Profiles, brought=tuple(brought.values()))
        profiler = make(points[0].job.request.cache_dir, traits.arch, bench.processes)
        try:
            left_s = functools.partial(self._left_of, begun + limit_s)
            found = rankings(asked, self.model, profiler, left_s, lambda line: print(line, flush=True))
        finally:
            profiler.close()
        took_s = self.seams.now() - begun
        ranked, left_out = (sum(values) for values in zip(*((len(one.us), one.left_out) for one in found), strict=True))
        late = f"; its time ended (--seconds): {left_out} not predicted" if left_out else ""
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
    ) -> PointFound:
        """Search one point: those that the model ranks best, if it ranked any, else all. RequestError if no candidate
        passed."""
        place, traits = bench.at(point.job)
        candidates = candidates_of(point.job, point.case, traits)
        own = [one.algorithm for one in candidates_of(point.job, point.case, traits).own()]
        search = Search(
            bench=place,
            candidates=candidates,
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
        searched = Searched(
            timed=done.timed,
            failed=len(done.failed) + len(ranking.failed),
            left_out=done.left_out + ranking.left_out,
            how=how,
            model=model,
            ranked=len(ranking.us),
            predicted=tuple(Guess(candidates.said(one.name), one.us) for one in guesses),
        )
        said = candidates.said
        return PointFound(
            tuple(map(said, done.best)), tuple(said(one) for one in own if one not in done.failed), searched
        )

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
                    composer = Composer()
                    composed = [self._final(composer, finals[at], at) for at in part]
                folder = self._ran(composed).absolute()
                state.finals[key] = str(folder)
                _saved(state)
            folders.append(folder)
        return folders

    def _final(self, composer: Composer, final: Final, number: int) -> ComposedJob:
        """The job of a final. Inside hydra_over."""
        job, case = final.point.job, final.point.case
        more = [f"placement={case.placement}", *unless(job, FINALS_USUAL)]
        libraries = baselines_of(job) if final.is_searched else "none"
        return composed_as(composer, job, final.names, [case.size_bytes], number, more, libraries)

    def _ran(self, composed: Sequence[ComposedJob]) -> Path:
        ran = self.seams.finals or run_quietly
        return ran(("tune", *self.given), composed)

    # The table

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


def _saved(state: State) -> None:
    try:
        state.save()
    except OSError as error:
        raise RequestError(
            f"{state.path}: {error.strerror} (-o), give a table in a folder that can be written"
        ) from None


def _line(number: int, count: int, point: Point, found: PointFound) -> str:
    one = found.searched
    more = (f", {one.failed} failed" if one.failed else "") + (f", {one.left_out} not tried" if one.left_out else "")
    of = f"{one.timed} measured of {one.ranked} predicted" if one.ranked else counted(one.timed, "candidate")
    return f"[{number}/{count}] {point.label}: {found.best[0]} of {of}{more}"
