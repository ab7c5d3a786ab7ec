"""Records from files, folders and bundles; and bundles, which hold many records in one file.

A bundle is <name>.jsonl.xz: one record a line, each once, sorted, nothing left out. The same records give the same
bytes, in whatever order they come and by however many files.
"""

from __future__ import annotations

import gc
import hashlib
import json
import lzma
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from memory.atomic_file import replacing
from reports import second_process
from reports.record.record import Record, from_json, load

SUFFIX = ".jsonl.xz"

VERDICT_NAME = "verdict.json"
"""What a replay ended with, beside the folders of its records."""

LEVEL_NAME = "level.json"
"""The level that a published set must keep, beside its bundles."""

NOT_RECORDS = frozenset({"command.json", VERDICT_NAME, LEVEL_NAME})
"""What a folder of records holds beside them, with their suffix."""

_DICTIONARY_BYTES = 1 << 25
"""How far back xz looks for what it has seen: the records of a case lie within, and so does their environment."""


MANY = 1000
"""Minimum number of files for which a second process saves time."""


def read(places: Sequence[Path | str], is_alone: bool = False) -> list[Record]:
    """The records in files, folders (and below them, bundles too) and bundles, in the order in which they were begun.

    The same record in two places counts once: it is one measurement. is_alone: see second_process.started. ValueError,
    naming the place, for what can't be read, and for a place without records.
    """
    found: list[Record] = []
    if "" in places:
        raise ValueError(
            "'' is no place of records: give a record file, a folder, or a bundle; . is the working folder"
        )
    for place in map(Path, places):
        paths = record_files(place)
        with _no_collections():
            if is_alone and len(paths) >= MANY:  # more than half of them here: those of the other have to come over
                first, second = paths[: len(paths) * 11 // 20], paths[len(paths) * 11 // 20 :]
                others = second_process.started(partial(_read, second), is_alone)
                here = [*_read(first), *others()]
            else:
                here = _read(paths)
        if not here:
            raise ValueError(f"{place}: no records here; give a record file, a folder that holds some, or a {SUFFIX}")
        found += here
    if is_alone:
        gc.freeze()  # they stay to the end: no search for cycles looks at them, and copies share their memory
    return merged(found)


def _read(paths: Sequence[Path]) -> list[Record]:
    return [record for path in paths for record in (unpacked(path) if _is_bundle(path) else [_loaded(path)])]


def _loaded(path: Path) -> Record:
    """The record in a file. ValueError for anything else: for a file of another kind with what would be right."""
    try:
        return load(path)
    except ValueError as error:
        if path.suffix == ".json" or not path.is_file():
            raise
        raise ValueError(f"{error}; give a record file, a folder that holds some, or a {SUFFIX}") from None


def merged(records: Iterable[Record]) -> list[Record]:
    """Each record once, in the order in which they were begun."""
    found: dict[tuple[str, str, str, float], list[Record]] = {}
    for record in records:
        alike = found.setdefault((record.id, record.started, record.ended, record.duration_s), [])
        if not alike or line_of(record) not in map(line_of, alike):
            alike.append(record)
    each = [record for alike in found.values() for record in alike]
    return sorted(each, key=lambda record: (datetime.fromisoformat(record.started), record.id))


def unpacked(path: Path | str) -> list[Record]:
    """Return the records of a bundle. Raises ValueError, naming the file and the line if known, if it is not a valid
    bundle."""
    try:
        text = lzma.decompress(Path(path).read_bytes(), lzma.FORMAT_XZ).decode("utf-8")
    except OSError as error:
        raise ValueError(f"{path}: can't be read ({error.strerror or error})") from None
    except (EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: can't be read as a bundle ({error})") from None
    return [from_json(line, f"{path}, line {number}") for number, line in enumerate(text.splitlines(), start=1)]


def packed(records: Iterable[Record], is_quick: bool = False) -> bytes:
    """The bytes of a bundle with these records. is_quick: half again as large, in a tenth of the time."""
    data = _lines(records)
    preset = 0 if is_quick else 9 | lzma.PRESET_EXTREME
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": _DICTIONARY_BYTES}]
    return lzma.compress(data, lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=filters)


def write(records: Iterable[Record], path: Path | str, is_quick: bool = False) -> int:
    """Write a bundle, in one step, and give its size in bytes. ValueError naming the file when that can't be done."""
    path = Path(path)
    if not _is_bundle(path):
        raise ValueError(f"{path}: a bundle's name ends in {SUFFIX}")
    data = packed(records, is_quick)
    write_file(path, data)
    return len(data)


def write_file(path: Path, data: bytes) -> None:
    """Replace a file in one step: there in full or not at all. ValueError naming it when that can't be done."""
    try:
        with replacing(path) as beside:
            beside.write_bytes(data)
    except OSError as error:
        raise ValueError(f"{path}: can't be written ({error.strerror or error})") from None


def can_be_written(path: Path) -> None:
    """ValueError where write_file would fail: said before the work, not after it."""
    folder = path.absolute().parent
    try:
        if not folder.is_dir():
            raise ValueError(f"{path}: can't be written (there is no such folder)")
        if path.is_dir():
            raise ValueError(f"{path}: can't be written (it is a folder)")
    except OSError as error:  # of a name that is too long
        raise ValueError(f"{path}: can't be written ({error.strerror or error})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{path}: can't be written (the folder is not for this user to write to)")


def line_of(record: Record) -> str:
    """A record as one line of JSON, without its end."""
    # In ASCII: text may hold what splitlines() takes for the end of a line, such as U+2028.
    return json.dumps(record.document(), separators=(",", ":"), allow_nan=False)


def digest(records: Iterable[Record]) -> str:
    """Which records these are, in whatever order: "sha256:<hex>" of what their bundle holds."""
    return f"sha256:{hashlib.sha256(_lines(records)).hexdigest()}"


def _lines(records: Iterable[Record]) -> bytes:
    found = {line_of(record): record for record in records}
    lines = sorted(found, key=lambda line: (*_order(found[line]), line))
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _order(record: Record) -> tuple[Any, ...]:
    """Like beside like: a case's worlds follow one another."""
    case = record.case
    names = (case.op, case.dtype, case.accumulator, case.reduction)
    return (*names, case.world_size, case.size_bytes, case.algorithm, record.id, record.started)


def record_files(place: Path) -> list[Path]:
    """The files of records and the bundles of a place: in a folder and below, sorted; a file is itself."""
    try:
        if not place.is_dir():
            return [place]
    except OSError as error:  # of a name that is too long
        raise ValueError(f"{place}: can't be read ({error.strerror or error})") from None
    return sorted(
        path
        for pattern in ("*.json", f"*{SUFFIX}")
        for path in place.rglob(pattern)
        if path.name not in NOT_RECORDS and path.is_file()
    )


@contextmanager
def _no_collections() -> Iterator[None]:
    """Without Python's search for cycles, which records do not have: it would look at all of them again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _is_bundle(path: Path) -> bool:
    return path.name.endswith(SUFFIX)
