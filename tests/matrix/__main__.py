"""python -m tests.matrix: run the whole matrix in the simulator, or on GPUs, and count what passed and was refused."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernels import catalogue
from kernels.compile import source_digest
from kernels.matrix.proofs import SIMULATOR, Proof, Tally, written
from kernels.matrix.variants import code_of
from kernels.spec import KernelSpec
from memory.atomic_file import replacing
from runner.interrupt import exit_code_of, interruptible, name_of
from tests.matrix.cells import WORLD_SIZES, Row, all_rows, sample
from tests.matrix.results import (
    GOOD,
    STATUSES,
    Outcome,
    Results,
    check_place,
    differences,
    digests_of,
    write_digests,
    writing,
)
from tests.matrix.running import ENDLESS, ROOT, Limit, cores, in_processes

SHOWN = 20
"""Cases that did not pass, of which the end shows the reasons."""

UNFINISHED = 3
"""The exit code of a run whose time was over."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if all passed or were refused, 1 if some were wrong or failed or --seconds was
    over before any row ended, 2 for a wrong request or a file that can't be written, 3
    if rows are left that --seconds gave no time, 128 and the signal's number if one ended it (SIGINT, SIGTERM,
    SIGHUP)."""
    options = _parser().parse_args(arguments)
    with interruptible():
        try:
            if options.compare and len(options.compare) > 1:
                return _compare_files(options)
            rows, expected = _rows(options), digests_of(options.compare[0]) if options.compare else None
            return _report(rows, options, expected)
        except ValueError as error:
            print(f"tests.matrix: error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt as interrupt:
            print(f"tests.matrix: {name_of(interrupt)}: not all rows were run", file=sys.stderr)
            return exit_code_of(interrupt)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--sample", action="store_true", help="every pair of the axes' values instead of all rows")
    parser.add_argument("--few", action="store_true", help="three rows a cell and world size")
    parser.add_argument("--kernel", action="append", help="only this one, such as all_reduce/one_shot; may be repeated")
    parser.add_argument("--world-size", action="append", type=int, help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (the cores: %(default)s)")
    parser.add_argument("--gpus", action="store_true", help="on GPUs, peer-to-peer kernels, one process a rank")
    parser.add_argument(
        "--share-gpus", action="store_true", help="with --gpus: several ranks may have the same GPU, and take turns"
    )
    parser.add_argument("--seconds", type=float, help="end after this time; exit code 3 if rows are left")
    parser.add_argument("--results", type=Path, help="keep what comes of each row in this file, row by row")
    parser.add_argument("--again", action="store_true", help="run the rows that --results lacks, then those not passed")
    parser.add_argument("--digests", type=Path, help="write the outputs' digests to this file")
    parser.add_argument(
        "--compare",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="hold the outputs to the digests in this file; of two or more files, hold the others to the first, and "
        "run nothing",
    )
    parser.add_argument("--proof", type=Path, help="write a proof for kernels/proven/ to this file")
    parser.add_argument("--commit", default="", help="the commit of this tree in a proof, where there is no git")
    return parser


def _report(rows: list[Row], options: argparse.Namespace, expected: dict[str, str] | None) -> int:
    """Run the rows, show and keep what was asked for, and return the exit code."""
    console = Console(stderr=True)
    began = time.monotonic()
    found, added = _found(rows, options, console)
    outcomes = [found[row] for row in rows if row in found]
    left = len(rows) - len(outcomes)
    if expected is not None:
        outcomes = compared(outcomes, expected)
    _show(outcomes, time.monotonic() - began)
    if options.digests:
        write_digests(options.digests, outcomes)
    if left:
        how = "" if options.results is None else ": --again runs them"
        print(f"{left} of {len(rows)} rows were not run, the time was over (--seconds){how}")
        if not added:
            print("no row ended in this run: give it more time (--seconds)")
        return UNFINISHED if added else 1
    bad = sum(one.status not in GOOD for one in outcomes)
    for name in idle(outcomes):
        print(f"{name}: nothing passed, all was refused")
        bad += 1
    if options.proof and not bad:
        text = written(proof(outcomes, _machine(options), options.commit))
        with writing(options.proof, "--proof"), replacing(options.proof) as beside:
            beside.write_text(text)
    return 1 if bad else 0


def _found(rows: list[Row], options: argparse.Namespace, console: Console) -> tuple[dict[Row, Outcome], int]:
    """Run rows, and return the outcomes by row, and how many this run added; with --again first those that the file of
    results lacks, then those that did not pass, and the outcomes of all that the file has."""
    limit = Limit.after(options.seconds)
    results = None if options.results is None else Results(options.results, _machine(options))
    if results is not None and results.is_begun and not options.again:
        raise ValueError(f"{options.results} is there already (--results): give --again to go on, or another file")
    kept = {} if results is None else {one.row: one for one in results.outcomes(rows)}
    turns = [[row for row in rows if row not in kept], [row for row in kept if kept[row].status not in GOOD]]
    added = 0
    for turn in filter(None, turns):
        for outcomes in _watched(_run(turn, options, limit), len(turn), console):
            if results is not None:
                results.add(outcomes)
            kept |= {one.row: one for one in outcomes}
            added += len(outcomes)
    return {row: kept[row] for row in rows if row in kept}, added


def _compare_files(options: argparse.Namespace) -> int:
    """List where other files have other bits than the first, and return the exit code: 1 if one has, or has nothing."""
    others_of = ("results", "digests", "proof", "seconds", "gpus", "share_gpus", "again", "sample")
    given = [name for name in others_of if getattr(options, name)]
    if given:
        raise ValueError(
            f"files are held to each other (--compare), and nothing runs: leave out --{given[0].replace('_', '-')}"
        )
    first, *others = options.compare
    there, bad = digests_of(first), 0
    for path in others:
        here = digests_of(path)
        found = differences(there, here)
        for id, one, other in found:
            print(f"{id}: {one} in {first}, {other} in {path}")
        bad += len(found) or not here
        only = len(there.keys() - here.keys())
        print(f"{path}: {len(here)} cases, {len(found)} differ from {first}, which has {only} more")
    return 1 if bad else 0


def _rows(options: argparse.Namespace) -> list[Row]:
    """Return the rows that the options ask for. Raises ValueError, before anything is compiled, for none at all."""
    for name in ("results", "digests", "proof"):
        if (path := getattr(options, name)) is not None:
            check_place(path, f"--{name}")
    if options.jobs < 1:
        raise ValueError(f"{options.jobs} processes (--jobs): give 1 or more")
    if options.seconds is not None and not 0 < options.seconds < threading.TIMEOUT_MAX:
        raise ValueError(f"{options.seconds:g} seconds (--seconds): give a number greater than 0")
    if options.again and options.results is None:
        raise ValueError("there is nothing to go on with (--again): give the file of results, too (--results)")
    if options.share_gpus and not options.gpus:
        raise ValueError("simulated ranks have no GPU to share (--share-gpus), leave it out, or give --gpus, too")
    sizes = tuple(options.world_size or WORLD_SIZES)
    if min(sizes) < 1:
        raise ValueError(f"{min(sizes)} ranks (--world-size): give 1 or more")
    specs = _in_order(options.kernel) if options.kernel else catalogue.SPECS
    if options.gpus:
        from tests.matrix.gpus import world_sizes

        specs = tuple(spec for spec in specs if not spec.needs_multicast)
        sizes = world_sizes(options.world_size or (), options.share_gpus)
    if options.sample:
        names = {spec.name for spec in specs}
        rows = [row for row in sample() if row.name in names and row.world_size in sizes]
    else:
        rows = all_rows(specs, sizes, few=options.few)
    if not rows:
        raise ValueError(
            f"no row of the matrix has these kernels and {', '.join(map(str, sizes))} ranks (--world-size)"
        )
    return rows


def _in_order(names: Sequence[str]) -> tuple[KernelSpec, ...]:
    """The kernels of these names in the catalogue's order, each once. Raises ValueError for an unknown name."""
    wanted = {catalogue.find(name).name for name in names}
    return tuple(spec for spec in catalogue.ALL_SPECS if spec.name in wanted)


def _run(rows: list[Row], options: argparse.Namespace, limit: Limit = ENDLESS) -> Iterator[list[Outcome]]:
    if not options.gpus:
        yield from in_processes(rows, options.jobs, limit)
        return
    from tests.matrix.gpus import on_gpus

    with closing(on_gpus(rows, options.jobs, limit, options.share_gpus)) as outcomes:
        yield from outcomes


def _watched(tasks: Iterable[list[Outcome]], count: int, console: Console) -> Iterator[list[Outcome]]:
    """The outcomes of each task, with progress where somebody looks; a line a minute elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    tally: Counter[str] = Counter()
    said = time.monotonic()
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("cases", total=count)
        for outcomes in tasks:
            tally.update(one.status for one in outcomes)
            text = ", ".join(f"{number} {status.lower()}" for status, number in sorted(tally.items()))
            progress.update(task, advance=len(outcomes), description=text)
            if not console.is_terminal and time.monotonic() - said > 60:
                console.print(f"{tally.total()} of {count}: {text}")
                said = time.monotonic()
            yield outcomes


def compared(outcomes: Iterable[Outcome], expected: dict[str, str]) -> list[Outcome]:
    """Outcomes that passed with other bits than were expected are WRONG, and refusals of what ran elsewhere."""
    found = []
    for one in outcomes:
        if one.status == "REFUSED" and expected.get(one.id, "REFUSED") != "REFUSED":
            one = Outcome(one.row, one.id, "WRONG", f"refused here, and run elsewhere: {one.detail}")
        if one.status == "PASSED" and expected.get(one.id) != one.digest:
            detail = "no digest to compare with" if one.id not in expected else "other bits than the simulator's"
            one = Outcome(one.row, one.id, "WRONG", detail, one.digest)
        found.append(one)
    return found


def idle(outcomes: Iterable[Outcome]) -> list[str]:
    """Kernels of which nothing passed."""
    passed = {one.row.name for one in outcomes if one.status == "PASSED"}
    return sorted({one.row.name for one in outcomes if one.status == "REFUSED"} - passed)


def proof(outcomes: Sequence[Outcome], machine: str, without_git: str = "") -> Proof:
    """Return what outcomes prove, for kernels/proven/, if all passed or were refused. without_git: the commit of a tree
    that was copied without its repository."""
    specs = {}
    with tempfile.TemporaryDirectory() as folder:
        for spec in catalogue.SPECS:
            mine = [one for one in outcomes if one.row.name == spec.name]
            passed = [one for one in mine if one.status == "PASSED"]
            if passed:
                sizes = tuple(sorted({one.row.world_size for one in passed}))
                code = code_of(spec, Path(folder)).code
                specs[spec.name] = Tally(len(passed), len(mine) - len(passed), sizes, source_digest(spec), code)
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return Proof(machine, f"{datetime.now(UTC):%Y-%m-%d}", commit.stdout.strip() or without_git or "unknown", specs)


def _machine(options: argparse.Namespace) -> str:
    if not options.gpus:
        return SIMULATOR
    from tests.matrix.gpus import machine

    return machine(options.share_gpus)


def _show(outcomes: Sequence[Outcome], seconds: float) -> None:
    """The count a kernel, the reasons of what was wrong, and the sums."""
    console = Console(width=120)
    table = Table("kernel", *map(str.lower, STATUSES), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in dict.fromkeys(one.row.name for one in outcomes):
        mine = [one for one in outcomes if one.row.name == name]
        tally = Counter(one.status for one in mine)
        table.add_row(name, *(str(tally[status]) for status in STATUSES))
    console.print(table)
    bad = [one for one in outcomes if one.status not in ("PASSED", "REFUSED")]
    for one in bad[:SHOWN]:
        console.print(f"{one.status} {one.id}: {one.detail}", style="red", soft_wrap=True)
    tally = Counter(one.status for one in outcomes)
    console.print(
        f"{len(outcomes)} cases: {tally['PASSED']} passed, {tally['REFUSED']} refused, {len(bad)} bad; {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
