"""symlab predict: times of cases on a type of GPU, on a machine without any; and the model's score.

What it prints is always marked as predicted, and never stands beside measured times: the table has a heading of its
own, and each line of CSV and JSON says so. Only --kept compares the two, and its table has errors, no curves.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from reports.record.bundle import can_be_written, read, write_file
from reports.table.sheet import room_here
from runner.launch.workers import usable_cores
from runner.predict import on_records, published, ranges
from runner.predict.asking import Asked, asked_jobs, series_of
from runner.predict.compared import comparison
from runner.predict.compared import shown as compared_text
from runner.predict.keeping import check_folder, kept_in, write_kept
from runner.predict.score import scored
from runner.predict.shown import Series, document
from runner.predict.stored_score import Stored, shown, stored, write
from runner.predict.tracing import check_timed, trace
from runner.predict.verb import Options as Options
from runner.request.compose import compose_jobs, hydra_over
from runner.request.validate import CONF
from runner.request_error import RequestError


def check(options: Options) -> None:
    """RequestError for options that exclude each other, or have no effect together."""
    if options.write and not options.score:
        raise RequestError("--write has no effect without --score (--write), add --score")
    if options.score and (options.explain or options.multirun or options.config_dir):
        raise RequestError("--score reads records (--score), leave --explain, -m and --config-dir out")
    if options.score and options.write and options.overrides:
        raise RequestError("--write is of the score by the published records (--write), leave other records out")
    mine = [f"--{name}" for name in ("score", "kept", "keep") if getattr(options, name)]
    if len(mine) > 1:
        raise RequestError(f"{mine[0]} and {mine[1]} exclude each other ({mine[1]}), give one of them")
    if options.kept is not None and (options.explain or options.multirun or options.config_dir):
        raise RequestError(
            "--kept compares records with what was predicted (--kept), leave --explain, -m and --config-dir out"
        )
    for name in ("ranges", "output", "page", "trace"):
        if getattr(options, name) and (options.score or options.kept is not None):
            shown_name = "-o" if name == "output" else f"--{name}"
            raise RequestError(f"{shown_name} is of new predictions ({shown_name}), leave --score and --kept out")
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
            return _score_of(options.overrides, options.form) if options.overrides else _score(options)
    if options.kept is not None:
        with _noted("while comparing; nothing is printed"):
            return _compare(options.kept, options.overrides, options.form)
    _check_files(options)
    score = stored()
    asked = asked_jobs(options.overrides, options.multirun, options.config_dir)
    if options.keep is not None:
        check_folder(options.keep, asked)
    if options.trace is not None:
        check_timed(asked)
    has_paths = options.explain or options.trace is not None
    with _noted("while predicting; nothing is printed or written, the profiles of finished cases are in cache_dir"):
        found = [series_of(one, score, has_paths, keeps_spans=options.trace is not None) for one in asked]
    with _noted("while writing; the files that are said to be written are whole, no other was changed"):
        return _told(options, score, asked, found)


def _told(options: Options, score: Stored, asked: Sequence[Asked], found: list[Series]) -> int:
    """Write and print predictions as they are asked for. Returns the exit code."""
    late = [line for one in found for line in (*one.omissions, *one.failures)]
    for line in late:
        print(f"symlab: {line}", file=sys.stderr, flush=True)
    if late and not any(one.predictions for one in found):
        return 1
    if not any(one.predictions for one in found):
        raise RequestError(f"nothing can be predicted: {'; '.join(found[0].refusals) or 'no case'} (algorithms)")
    if options.keep is not None:
        _keep(options.keep, asked, found)
    if options.trace is not None:
        _write(options.trace, json.dumps(trace(found), separators=(",", ":")) + "\n", "--trace")
        if not options.explain:
            found = [replace(one, paths={}) for one in found]
    if options.page is not None:
        from runner.predict.page import page

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
    files = {"-o": options.output, "--page": options.page, "--trace": options.trace}
    given = {name: path for name, path in files.items() if path is not None}
    for name, path in given.items():
        suffixes = {"--page": (".html", ".htm"), "--trace": (".json",)}.get(name)
        if suffixes and path.suffix not in suffixes:
            raise RequestError(f"{path}: a name that ends in {suffixes[0]} is needed ({name})")
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


def _keep(folder: Path, asked: Sequence[Asked], found: Sequence[Series]) -> None:
    """Write the predictions of each job into the folder, and name the files on stderr."""
    for one, series in zip(asked, found, strict=True):
        if series.predictions:
            print(f"{write_kept(folder, one, series, stored())}: written", file=sys.stderr)


def _compare(folder: Path, places: Sequence[str], form: str) -> int:
    """Compare measured records with the predictions that were kept in a folder."""
    if not places:
        raise RequestError("no records to compare with (--kept), give folders or bundles behind the options")
    try:
        found = comparison(kept_in(folder), read(list(places)))
    except ValueError as error:
        raise RequestError(f"{error} (--kept)") from error
    print(compared_text(found, form, room_here()), end="")
    return 0


def _score(options: Options) -> int:
    """Score the model by the published records; write the score if asked."""
    if options.form not in ("json", "text"):
        raise RequestError(f"a score has no {_NAMES[options.form]} (--score), give --format json or text")
    root = CONF.parent
    if options.write:
        published.make(root, lambda line: print(line, file=sys.stderr, flush=True))
    try:
        found = scored(published.evidence(root))
    except ValueError as error:
        raise RequestError(f"{error} (--score)") from error
    if options.write:
        write(found)
        print(
            "what changed in reports/published is in its manifest after: python -m reports published", file=sys.stderr
        )
    print(json.dumps(found.document(), indent=1) if options.form == "json" else shown(found.document(), room_here()))
    return 0


def _score_of(places: Sequence[str], form: str) -> int:
    """Score the model by any records, simulating what cache_dir has no profile of."""
    if form != "text":
        raise RequestError(f"a score by records has no {_NAMES.get(form, 'JSON')} (--score), leave --format out")
    with hydra_over():
        (job,) = compose_jobs((), False)
    profiled = on_records.profiled_in(job.request.cache_dir, usable_cores())
    try:
        asked = on_records.asked_of(read(list(places)))
    except ValueError as error:
        raise RequestError(f"{error} (--score), give folders or bundles of timed records") from error
    found, problems = on_records.scored(
        asked, profiled, stored(), lambda line: print(line, file=sys.stderr, flush=True)
    )
    if not found:
        raise RequestError(f"nothing can be predicted: {next(iter(problems.values()))} (--score)")
    print(on_records.report(found, problems, room_here()))
    return 1 if problems else 0


_NAMES = {"csv": "CSV", "markdown": "Markdown"}
