"""symlab predict: times of cases on a type of GPU, on a machine without any; and the model's score.

What it prints is always marked as predicted, and never stands beside measured times: the table has a heading of its
own, and each line of JSON says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from reports.record.bundle import read
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
from symlab.speed.predict.stored_score import score_text, shown, stored
from symlab.speed.predict.verb import Options as Options


def check(options: Options) -> None:
    """RequestError for options that exclude each other, or have no effect together."""
    if options.score and (options.multirun or options.config_dir):
        raise RequestError("--score reads records (--score), leave -m and --config-dir out")
    if options.score and options.overrides and options.form != "text":
        raise RequestError("a score by records has no JSON (--score), leave --format out")


def predict(options: Options) -> int:
    """Do what a command line asks for. Returns the exit code, 1 if cases are unfinished or failed. RequestError for a
    wrong request."""
    check(options)
    if options.score:
        with _noted("while scoring; what was simulated stays"):
            return _score_of(options.overrides) if options.overrides else _score(options.form)
    score = stored()
    asked = asked_jobs(options.overrides, options.multirun, options.config_dir)
    with _noted("while predicting; nothing is printed, the profiles of finished cases are in cache_dir"):
        found = [series_of(one, score) for one in asked]
    return _told(options, found)


def _told(options: Options, found: list[Series]) -> int:
    """Print predictions as they are asked for. Returns the exit code."""
    late = [line for one in found for _, line in one.reasons("unfinished", "failed")]
    for line in late:
        print(f"symlab: {line}", file=sys.stderr, flush=True)
    if late and not any(one.predictions for one in found):
        return 1
    if not any(one.predictions for one in found):
        why = "; ".join(line for _, line in found[0].reasons())
        raise RequestError(f"nothing can be predicted: {why or 'no case'} (algorithms)")
    print(document(found, options.form), end="")
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
    try:
        found = scored(published.evidence(CONF.parent))
    except ValueError as error:
        raise RequestError(f"{error} (--score)") from error
    print(score_text(found).rstrip() if form == "json" else shown(found, room_here()))
    return 0


def _score_of(places: Sequence[str]) -> int:
    """Score the model by any records, simulating what cache_dir has no profile of."""
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
    print(on_records.report(found, problems))
    return 1 if problems else 0
