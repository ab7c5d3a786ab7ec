"""symlab predict: times of cases on a type of GPU, on a machine without any; and the model's score.

What it prints is always marked as predicted, and never stands beside measured times: the table has a heading of its
own, and each line of CSV and JSON says so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from reports.record.bundle import read
from reports.record.writing import can_be_written, write_file
from reports.table.sheet import room_here
from runner.environment.host import usable_cores
from runner.request.compose import compose_jobs, hydra_over
from runner.request.experiments import CONF
from runner.request_error import RequestError
from symlab.speed.predict import on_records, published
from symlab.speed.predict.asked_jobs import asked_jobs
from symlab.speed.predict.asking import series_of
from symlab.speed.predict.score import scored
from symlab.speed.predict.shown import Series, document
from symlab.speed.predict.stored_score import shown, stored
from symlab.speed.predict.verb import Options as Options


def check(options: Options) -> None:
    """RequestError for options that exclude each other, or have no effect together."""
    if options.score and (options.explain or options.multirun or options.config_dir):
        raise RequestError("--score reads records (--score), leave --explain, -m and --config-dir out")
    if options.output is not None and options.score:
        raise RequestError("-o is of new predictions (-o), leave --score out")
    if options.explain and options.form == "csv":
        raise RequestError("a path is no line of CSV (--explain), give --format json or text")


def predict(options: Options) -> int:
    """Do what a command line asks for. Returns the exit code, 1 if cases are unfinished or failed. RequestError for a
    wrong request."""
    check(options)
    if options.score:
        with _noted("while scoring; what was simulated stays"):
            return _score_of(options.overrides, options.form) if options.overrides else _score(options.form)
    if options.output is not None:  # before anything is simulated
        try:
            can_be_written(options.output)
        except ValueError as error:
            raise RequestError(f"{error} (-o)") from None
    score = stored()
    asked = asked_jobs(options.overrides, options.multirun, options.config_dir)
    with _noted("while predicting; nothing is printed or written, the profiles of finished cases are in cache_dir"):
        found = [series_of(one, score, options.explain) for one in asked]
    with _noted("while writing; the files that are said to be written are whole, no other was changed"):
        return _told(options, found)


def _told(options: Options, found: list[Series]) -> int:
    """Write and print predictions as they are asked for. Returns the exit code."""
    late = [line for one in found for _, line in one.reasons("unfinished", "failed")]
    for line in late:
        print(f"symlab: {line}", file=sys.stderr, flush=True)
    if late and not any(one.predictions for one in found):
        return 1
    if not any(one.predictions for one in found):
        why = "; ".join(line for _, line in found[0].reasons())
        raise RequestError(f"nothing can be predicted: {why or 'no case'} (algorithms)")
    told = document(found, options.form)
    if options.output is None:
        print(told, end="")
    else:
        try:
            write_file(options.output, told.encode())
        except ValueError as error:
            raise RequestError(f"{error} (-o)") from None
        print(f"{options.output}: written", file=sys.stderr)
    return 1 if late else 0


@contextmanager
def _noted(said: str) -> Iterator[None]:
    """Within, an interrupt is noted to have come when it did: what is said of it then."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(said)
        raise


def _score(form: str) -> int:
    """Score the model by the published records."""
    if form not in ("json", "text"):
        raise RequestError(f"a score has no {_NAMES[form]} (--score), give --format json or text")
    try:
        found = scored(published.evidence(CONF.parent)).document()
    except ValueError as error:
        raise RequestError(f"{error} (--score)") from error
    print(json.dumps(found, indent=1) if form == "json" else shown(found, room_here()))
    return 0


def _score_of(places: Sequence[str], form: str) -> int:
    """Score the model by any records, simulating what cache_dir has no profile of."""
    if form != "text":
        raise RequestError(f"a score by records has no {_NAMES.get(form, 'JSON')} (--score), leave --format out")
    with hydra_over():
        (job,) = compose_jobs((), False)
    profiled = on_records.profiled_in(job.request.cache_dir, usable_cores())
    try:
        worlds = on_records.worlds_of(read(list(places)))
    except ValueError as error:
        raise RequestError(f"{error} (--score), give folders or bundles of timed records") from error
    found, problems = on_records.scored(
        worlds, profiled, stored(), lambda line: print(line, file=sys.stderr, flush=True)
    )
    if not found:
        raise RequestError(f"nothing can be predicted: {next(iter(problems.values()))} (--score)")
    print(on_records.report(found, problems, room_here()))
    return 1 if problems else 0


_NAMES = {"csv": "CSV", "markdown": "Markdown"}
