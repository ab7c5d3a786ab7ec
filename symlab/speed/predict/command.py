"""symlab predict: times of cases on a type of GPU, on a machine without any; and the model's score.

What it prints is always marked as predicted, and never stands beside measured times: the table has a heading of its
own, and each line of CSV and JSON says so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from reports.record.bundle import read
from reports.record.writing import can_be_written, write_file
from reports.table.sheet import room_here
from runner.environment.host import usable_cores
from runner.request.compose import compose_jobs, hydra_over
from runner.request.experiments import CONF
from runner.request_error import RequestError
from symlab.speed.predict import on_records, published, ranges
from symlab.speed.predict.asking import asked_jobs, series_of
from symlab.speed.predict.score import scored
from symlab.speed.predict.shown import Series, document
from symlab.speed.predict.stored_score import Stored, shown, stored
from symlab.speed.predict.verb import Options as Options


def check(options: Options) -> None:
    """RequestError for options that exclude each other, or have no effect together."""
    if options.score and (options.explain or options.multirun or options.config_dir):
        raise RequestError("--score reads records (--score), leave --explain, -m and --config-dir out")
    for name in ("ranges", "output", "page"):
        if getattr(options, name) and options.score:
            shown_name = "-o" if name == "output" else f"--{name}"
            raise RequestError(f"{shown_name} is of new predictions ({shown_name}), leave --score out")
    if options.ranges and options.explain and options.form == "json":
        raise RequestError("ranges in JSON have no paths (--explain), give --format text or markdown")
    if options.explain and options.form == "csv":
        raise RequestError("a path is no line of CSV (--explain), give --format json or text")


def predict(options: Options) -> int:
    """Do what a command line asks for. Returns the exit code, 1 if cases are unfinished or failed. RequestError for a
    wrong request."""
    check(options)
    if options.score:
        with _noted("while scoring; what was simulated stays"):
            return _score_of(options.overrides, options.form) if options.overrides else _score(options.form)
    _check_files(options)
    score = stored()
    asked = asked_jobs(options.overrides, options.multirun, options.config_dir)
    with _noted("while predicting; nothing is printed or written, the profiles of finished cases are in cache_dir"):
        found = [series_of(one, score, options.explain) for one in asked]
    with _noted("while writing; the files that are said to be written are whole, no other was changed"):
        return _told(options, score, found)


def _told(options: Options, score: Stored, found: list[Series]) -> int:
    """Write and print predictions as they are asked for. Returns the exit code."""
    late = [line for one in found for _, line in one.reasons("unfinished", "failed")]
    for line in late:
        print(f"symlab: {line}", file=sys.stderr, flush=True)
    if late and not any(one.predictions for one in found):
        return 1
    if not any(one.predictions for one in found):
        why = "; ".join(line for _, line in found[0].reasons())
        raise RequestError(f"nothing can be predicted: {why or 'no case'} (algorithms)")
    if options.page is not None:
        from symlab.speed.predict.page import page

        _write(options.page, page(found, score, options.ranges), "--page")
    told = _shown(found, options)
    if options.output is None:
        print(told, end="")
    else:
        _write(options.output, told, "-o")
    return 1 if late else 0


@contextmanager
def _noted(said: str) -> Iterator[None]:
    """Within, an interrupt is noted to have come when it did: what is said of it then."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(said)
        raise


def _check_files(options: Options) -> None:
    """RequestError, before anything is simulated, if a file could not be written or has a name of another kind."""
    files = {"-o": options.output, "--page": options.page}
    given = {name: path for name, path in files.items() if path is not None}
    for name, path in given.items():
        if name == "--page" and path.suffix not in (".html", ".htm"):
            raise RequestError(f"{path}: a name that ends in .html is needed (--page)")
        try:
            can_be_written(path)
        except ValueError as error:
            raise RequestError(f"{error} ({name})") from None
    if len({os.path.realpath(path) for path in given.values()}) < len(given):
        raise RequestError(f"one file for two things ({', '.join(given)}), give each its own")


def _write(path: Path, text: str, option: str) -> None:
    """Write a file whole or not at all, and name it on stderr."""
    try:
        write_file(path, text.encode())
    except ValueError as error:
        raise RequestError(f"{error} ({option})") from None
    print(f"{path}: written", file=sys.stderr)


def _shown(found: Sequence[Series], options: Options) -> str:
    """Return the predictions as they are asked for: with ranges of sizes, or as ranges alone in CSV and JSON."""
    if not options.ranges:
        return document(found, options.form)
    if options.form in ("csv", "json"):
        return ranges.written(found, options.form)
    return document(found, options.form, [one for series in found for one in ranges.sheet(series)], [ranges.CAPTION])


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
