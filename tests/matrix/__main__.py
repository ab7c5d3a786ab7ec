"""python -m tests.matrix: run the whole matrix in the simulator, or on GPUs, and count what passed and was refused."""

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from kernels import catalogue
from kernels.compile import source_digest
from kernels.matrix.proofs import SIMULATOR, Proof, Tally, written
from kernels.matrix.variants import code_of
from runner.interrupt import exit_code_of, interruptible, name_of
from tests.matrix.cells import WORLD_SIZES, all_rows
from tests.matrix.results import GOOD, STATUSES, Results, differences, digests_of
from tests.matrix.running import ENDLESS, ROOT, Limit, cores, in_processes

SHOWN = 20
"""Cases that did not pass, of which the end shows the reasons."""

UNFINISHED = 3
"""The exit code of a run whose time was over."""


def main(arguments=None):
    """Return the exit code: 0 if all passed or were refused, 1 if some were wrong or failed or --seconds was
    over before any row ended, 2 for a wrong request or a file that can't be written, 3
    if rows are left that --seconds gave no time, 128 and the signal's number if one ended it (SIGINT, SIGTERM,
    SIGHUP)."""
    options = _parser().parse_args(arguments)
    with interruptible():
        try:
            return _compare_files(*options.compare) if options.compare else _report(_rows(options), options)
        except ValueError as error:
            print(f"tests.matrix: error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt as interrupt:
            print(f"tests.matrix: {name_of(interrupt)}: not all rows were run", file=sys.stderr)
            return exit_code_of(interrupt)


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--few", action="store_true", help="three rows a cell and world size")
    parser.add_argument("--kernel", action="append", help="only this one, such as all_reduce/one_shot; may be repeated")
    parser.add_argument("--world-size", action="append", type=int, help="only this one; may be repeated")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes (the cores: %(default)s)")
    parser.add_argument("--gpus", action="store_true", help="on GPUs, peer-to-peer kernels, one process a rank")
    parser.add_argument(
        "--share-gpus", action="store_true", help="with --gpus: several ranks may have the same GPU, and take turns"
    )
    parser.add_argument("--seconds", type=float, help="end after this time; exit code 3 if rows are left")
    parser.add_argument("--results", type=Path, help="keep what comes of each row in this file; run what it lacks")
    parser.add_argument("--compare", type=Path, nargs=2, help="hold a file of results to another, and run nothing")
    parser.add_argument("--proof", type=Path, help="write a proof for kernels/proven/ to this file")
    parser.add_argument("--commit", default="", help="the commit of this tree in a proof, where there is no git")
    return parser


def _report(rows, options):
    """Run the rows, show and keep what was asked for, and return the exit code."""
    began = time.monotonic()
    found, added = _found(rows, options)
    outcomes = [found[row] for row in rows if row in found]
    left = len(rows) - len(outcomes)
    _show(outcomes, time.monotonic() - began)
    if left:
        print(f"{left} of {len(rows)} rows were not run, the time was over (--seconds)")
        if not added:
            print("no row ended in this run: give it more time (--seconds)")
        return UNFINISHED if added else 1
    bad = sum(one.status not in GOOD for one in outcomes)
    passed = {one.row.name for one in outcomes if one.status == "PASSED"}
    for name in sorted({one.row.name for one in outcomes if one.status == "REFUSED"} - passed):
        print(f"{name}: nothing passed, all was refused")
        bad += 1
    if options.proof and not bad:
        options.proof.write_text(written(proof(outcomes, _machine(options), options.commit)))
    return 1 if bad else 0


def _found(rows, options):
    """Run the rows that the file of results lacks, then those that did not pass, and return the outcomes of all by row,
    and how many this run added."""
    ends_s = math.inf if options.seconds is None else time.monotonic() + options.seconds
    results = None if options.results is None else Results(options.results, _machine(options))
    kept = {} if results is None else {one.row: one for one in results.outcomes(rows)}
    turns = [[row for row in rows if row not in kept], [row for row in kept if kept[row].status not in GOOD]]
    added = 0
    for turn in filter(None, turns):
        for outcomes in track(_run(turn, options, Limit(ends_s)), "rows", len(turn), console=Console(stderr=True)):
            if results is not None:
                results.add(outcomes)
            kept |= {one.row: one for one in outcomes}
            added += len(outcomes)
    return kept, added


def _compare_files(first, other):
    """List where a file has other bits than the first, and return the exit code: 1 if it has, or has nothing."""
    there, here = digests_of(first), digests_of(other)
    found = differences(there, here)
    for id, one, two in found:
        print(f"{id}: {one} in {first}, {two} in {other}")
    only = len(there.keys() - here.keys())
    print(f"{other}: {len(here)} cases, {len(found)} differ from {first}, which has {only} more")
    return int(bool(found) or not here)


def _rows(options):
    """Return the rows that the options ask for. Raises ValueError, before anything is compiled, for none at all."""
    if options.share_gpus and not options.gpus:
        raise ValueError("simulated ranks have no GPU to share (--share-gpus), leave it out, or give --gpus, too")
    sizes = tuple(options.world_size or WORLD_SIZES)
    specs = _in_order(options.kernel) if options.kernel else catalogue.SPECS
    if options.gpus:
        from tests.matrix.gpus import world_sizes

        specs = tuple(spec for spec in specs if not spec.needs_multicast)
        sizes = world_sizes(options.world_size or (), options.share_gpus)
    return all_rows(specs, sizes, few=options.few)


def _in_order(names):
    """The kernels of these names in the catalogue's order, each once. Raises ValueError for an unknown name."""
    wanted = {catalogue.find(name).name for name in names}
    return tuple(spec for spec in catalogue.ALL_SPECS if spec.name in wanted)


def _run(rows, options, limit=ENDLESS):
    if not options.gpus:
        yield from in_processes(rows, options.jobs, limit)
        return
    from tests.matrix.gpus import on_gpus

    with closing(on_gpus(rows, options.jobs, limit, options.share_gpus)) as outcomes:
        yield from outcomes


def proof(outcomes, machine, without_git=""):
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
    known = commit.stdout.strip() or without_git or "unknown"
    return Proof(machine=machine, date=f"{datetime.now(UTC):%Y-%m-%d}", commit=known, specs=specs)


def _machine(options):
    if not options.gpus:
        return SIMULATOR
    from tests.matrix.gpus import machine

    return machine(options.share_gpus)


def _show(outcomes, seconds):
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
