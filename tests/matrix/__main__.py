"""python -m tests.matrix: run the whole matrix in the simulator, or on GPUs, and count what passed and was refused."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
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
from runner.interrupt import exit_code_of, interruptible, name_of
from runner.request.compose import launcher_of
from tests.matrix.cells import WORLD_SIZES, Cell, Row, all_rows, sample
from tests.matrix.running import ROOT, Outcome, by_launcher, cores, in_processes

SHOWN = 20
"""Cases that did not pass, of which the end shows the reasons."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if all passed or were refused, 1 if some were wrong or failed, 2 for a wrong request, 128
    and the signal's number if one ended it (SIGINT, SIGTERM, SIGHUP)."""
    options = _parser().parse_args(arguments)
    with interruptible():
        try:
            rows, expected = _rows(options), _expected(options.compare)
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
    parser.add_argument(
        "--launcher",
        action="append",
        help="a launcher of Hydra's, joblib, submitit_local or submitit_slurm, or an option of it such as "
        "hydra.launcher.n_jobs=8; may be repeated",
    )
    parser.add_argument("--gpus", action="store_true", help="on GPUs, peer-to-peer kernels, one process a rank")
    parser.add_argument("--digests", type=Path, help="write the outputs' digests to this file")
    parser.add_argument("--compare", type=Path, help="hold the outputs to the digests in this file")
    parser.add_argument("--proof", type=Path, help="write a proof for kernels/proven/ to this file")
    parser.add_argument("--commit", default="", help="the commit of this tree in a proof, where there is no git")
    return parser


def _report(rows: list[Row], options: argparse.Namespace, expected: dict[str, str] | None) -> int:
    """Run the rows, show and keep what was asked for, and return the exit code."""
    console = Console(stderr=True)
    began = time.monotonic()
    outcomes = list(_watched(_run(rows, options), len(rows), console))
    if expected is not None:
        outcomes = compared(outcomes, expected)
    if options.digests:
        options.digests.write_text(json.dumps({one.id: one.digest for one in outcomes if one.digest}))
    _show(outcomes, time.monotonic() - began)
    bad = sum(one.status not in ("PASSED", "REFUSED") for one in outcomes)
    for name in idle(outcomes):
        print(f"{name}: nothing passed, all was refused")
        bad += 1
    if options.proof and not bad:
        options.proof.parent.mkdir(parents=True, exist_ok=True)
        options.proof.write_text(written(proof(outcomes, _machine(options), options.commit)))
    return 1 if bad else 0


def _expected(path: Path | None) -> dict[str, str] | None:
    """Return the digests that outputs are held to. Raises ValueError naming a file that holds none."""
    if path is None:
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} can't be read (--compare): {error}") from None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError(f"{path} holds no digests (--compare): give a file that --digests wrote")
    return found


def _rows(options: argparse.Namespace) -> list[Row]:
    """Return the rows that the options ask for. Raises ValueError, before anything is compiled, for none at all."""
    for path in (options.digests, options.proof):
        if path is not None and path.is_dir():
            raise ValueError(f"{path} can't be written: it is a folder")
    if options.jobs < 1:
        raise ValueError(f"{options.jobs} processes (--jobs): give 1 or more")
    options.launch = launcher_of(options.launcher or ())
    if options.launch is not None and options.gpus:
        raise ValueError("a launcher spreads simulated rows (--launcher), leave it out, or --gpus")
    sizes = tuple(options.world_size or WORLD_SIZES)
    if min(sizes) < 1:
        raise ValueError(f"{min(sizes)} ranks (--world-size): give 1 or more")
    specs = tuple(catalogue.find(name) for name in options.kernel) if options.kernel else catalogue.SPECS
    if options.gpus:
        from tests.matrix.gpus import world_sizes

        specs = tuple(spec for spec in specs if not spec.needs_multicast)
        sizes = world_sizes(options.world_size or ())
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


def _run(rows: list[Row], options: argparse.Namespace) -> Iterator[list[Outcome]]:
    if options.launch is not None:
        with closing(by_launcher(rows, options.launch)) as outcomes:
            yield from outcomes
        return
    if not options.gpus:
        yield from in_processes(rows, options.jobs)
        return
    from tests.matrix.gpus import on_gpus

    with closing(on_gpus(rows, options.jobs)) as outcomes:
        yield from outcomes


def _watched(tasks: Iterable[list[Outcome]], count: int, console: Console) -> Iterator[Outcome]:
    """The outcomes, with progress where somebody looks; a line a minute elsewhere."""
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
            yield from outcomes


def compared(outcomes: Iterable[Outcome], expected: dict[str, str]) -> list[Outcome]:
    """Outcomes that passed with other bits than were expected are WRONG, and refusals of what ran elsewhere."""
    found = []
    for one in outcomes:
        if one.status == "REFUSED" and one.id in expected:
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

    return machine()


def _show(outcomes: Sequence[Outcome], seconds: float) -> None:
    """The count a kernel, the reasons of what was wrong, and the sums."""
    console = Console(width=120)
    table = Table("kernel", *(("cells", "passed", "refused", "wrong", "failed")), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for name in dict.fromkeys(one.row.name for one in outcomes):
        mine = [one for one in outcomes if one.row.name == name]
        tally = Counter(one.status for one in mine)
        numbers = [len({_cell(one) for one in mine}), *(tally[s] for s in ("PASSED", "REFUSED", "WRONG", "FAILED"))]
        table.add_row(name, *map(str, numbers))
    console.print(table)
    bad = [one for one in outcomes if one.status not in ("PASSED", "REFUSED")]
    for one in bad[:SHOWN]:
        console.print(f"{one.status} {one.id}: {one.detail}", style="red", soft_wrap=True)
    cells_by = Counter(_verdict(outcomes).values())
    tally = Counter(one.status for one in outcomes)
    console.print(
        f"{cells_by.total()} cells: {cells_by['passed']} passed, {cells_by['refused']} refused, {cells_by['bad']} bad; "
        f"{len(outcomes)} cases: {tally['PASSED']} passed, {tally['REFUSED']} refused, {len(bad)} bad; {seconds:.0f} s"
    )


def _verdict(outcomes: Iterable[Outcome]) -> dict[Cell, str]:
    """By cell: bad where one of its cases is, passed where one passed, else refused."""
    found: dict[Cell, str] = {}
    rank = {"refused": 0, "passed": 1, "bad": 2}
    for one in outcomes:
        word = {"PASSED": "passed", "REFUSED": "refused"}.get(one.status, "bad")
        found[_cell(one)] = max(found.get(_cell(one), word), word, key=rank.__getitem__)
    return found


def _cell(outcome: Outcome) -> Cell:
    row = outcome.row
    return Cell(row.name, row.dtype, row.accumulator, row.reduction)


if __name__ == "__main__":
    sys.exit(main())
