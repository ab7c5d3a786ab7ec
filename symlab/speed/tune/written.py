"""The file of a table of choices: read where there is one, and written; and its new entries as text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from memory.atomic_file import replacing
from reports.table.sheet import one_here
from reports.table.text import counted
from runner.request_error import RequestError
from symlab.speed.tune.entries import Kept, merged, ranges_in
from symlab.speed.tuned.table import FOLDER, UNIT, Entry, Table, digest_of, read, size_text


def text_of(entries: Sequence[Entry]) -> str:
    """The new entries as a table."""
    return one_here("choices", list(map(_row, entries)), ("ranks", "size", UNIT, "its", "library's", "timed"))


def _row(one: Entry) -> dict[str, str]:
    other, library = one.runner_up, one.library
    return {
        "op": one.op,
        "dtype": one.dtype,
        "ranks": str(one.ranks),
        "size": size_text(one),
        "choice": one.choice.name,
        UNIT: f"{one.choice.value:.6g}",
        "interval": f"{one.choice.low:.4g} to {one.choice.high:.4g}",
        "runner-up": other.name if other is not None else "-",
        "its": f"{other.value:.6g}" if other is not None else "-",
        "library": library.name if library is not None else "-",
        "library's": f"{library.value:.6g}" if library is not None else "-",
        "timed": str(one.searched.timed),
        "found": one.searched.how,
    }


def refuse_project(place: Path) -> None:
    """RequestError for a table of the project, which can't name a kernel of the user's own."""
    if place.absolute().parent.resolve() == FOLDER:
        raise RequestError(f"{place} is a table of the project, which has its kernels alone (-o), give a file of yours")


def earlier_table(place: Path, gpu: str) -> Table | None:
    """The table that is there already, of the same GPUs and unit. RequestError for another one."""
    if not place.absolute().parent.is_dir():
        raise RequestError(f"there is no folder {place.absolute().parent} (-o), give a file in one that exists")
    if place.is_dir():
        raise RequestError(f"{place} is a folder (-o), give a file")
    if not place.exists():
        return None
    try:
        table = read(place)
    except ValueError as error:
        raise RequestError(f"{error} (-o)") from None
    if table.gpu != gpu:
        raise RequestError(f"{place} is of {table.gpu}, and this search is of {gpu} (-o), give another file")
    return table


def write(
    place: Path,
    gpu: str,
    given: Sequence[str],
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
        "with": shlex.join(["symlab", "tune", *given])[:200] or "symlab tune",
    }
    table = Table(
        gpu=gpu,
        arch=fabric.arch,
        made=made,
        entries=merged(earlier.entries if earlier is not None else (), entries),
    )
    written = table.text()
    try:
        with replacing(place) as beside:
            beside.write_text(written, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{place}: {error.strerror} (-o), give a file that can be written") from None
    ranges = counted(ranges_in(table.entries), "range")
    print(f"table: {place} ({counted(len(table.entries), 'choice')}, {ranges}, {digest_of(written)})")
    print(f"records of the finalists: {', '.join(map(str, folders))}")
    print(f"use it with: symlab run algorithms=best tuned={shlex.quote(str(place))} ..")
