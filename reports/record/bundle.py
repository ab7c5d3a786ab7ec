"""Records from files, folders and bundles; and bundles, which hold many records in one file.

A bundle is <name>.jsonl.xz: one record a line, each once, sorted, nothing left out. Before them come, a line each, the
environments and requests that records refer to (cases/record/shared.py). The same records give
the same bytes, in whatever order they come and by however many files.
"""

from __future__ import annotations

import gc
import hashlib
import json
import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from cases.record import shared
from cases.record.reading import MOST_BYTES, below, contents, kind_of, leaves
from cases.record.record import Record, from_json, load
from cases.record.shared import Known, References, is_shared_file
from reports.record.writing import write_file

SUFFIX = ".jsonl.xz"

PUBLISHED = Path("reports") / "published"
"""The folder of the project that has the published sets, each with its bundles."""

VERDICT_NAME = "verdict.json"
"""What a replay ended with, beside the folders of its records."""

KERNELS_NAME = "kernels.json.xz"
"""The kernels of a published set, beside its bundles, by which its times are predicted again."""

PLAN_NAME = "publish.json"
"""What symlab publish is to do, beside the bundles that it has made."""

NOT_RECORDS = frozenset({"command.json", VERDICT_NAME, PLAN_NAME})
"""What a folder of records holds beside them, with their suffix."""

_DICTIONARY_BYTES = 1 << 25
"""How far back xz looks for what it has seen: the records of a case lie within, and so does their environment."""

_COMPACT = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

MOST_PACKED_BYTES, MOST_UNPACKED_BYTES = 1 << 27, 1 << 28
"""Maximum sizes of a bundle and of its text, in which an environment is there once: 50,000 records of 5 KB."""

_UNPACKER_BYTES = 1 << 28
"""Maximum memory of the unpacker, whose dictionary a file chooses."""

_CHUNK_BYTES = 1 << 20


def published_sets(root: Path) -> list[str]:
    """Return the names of the published sets of a project."""
    return sorted({path.parent.name for path in (root / PUBLISHED).glob(f"*/*{SUFFIX}")})


def read(places: Sequence[Path | str], kept: Callable[[Record], Record] = lambda record: record) -> list[Record]:
    """The records in files, folders (and below them, bundles too) and bundles, in the order in which they were begun.

    The same record in two places counts once: it is one measurement. kept: what to keep of each. ValueError, naming the
    place, for what can't be read, and for a place without records.
    """
    if "" in places:
        raise ValueError(
            "'' is no place of records: give a record file, a folder, or a bundle; . is the working folder"
        )
    known = Known()
    records: list[Record] = []
    for place in map(Path, places):
        before = len(records)
        with _no_collections():
            for path in record_files(place):
                records += map(kept, unpacked(path, known) if _is_bundle(path) else [_loaded(path, known)])
        if len(records) == before:
            raise ValueError(f"{place}: no records here; give a record file, a folder that holds some, or a {SUFFIX}")
    return merged(records)


def _loaded(path: Path, known: Known) -> Record:
    """The record in a file. ValueError for anything else: for a file of another kind with what would be right."""
    try:
        return load(path, known)
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
    return sorted(each, key=begun)


def begun(record: Record) -> tuple[datetime, str, str]:
    """A key that sorts records by when they were begun."""
    return datetime.fromisoformat(record.started), record.id, record.request.command


def unpacked(path: Path | str, known: Known | None = None) -> list[Record]:
    """Return the records of a bundle. known: see record.from_json. Raises ValueError, naming the file and the line if
    known, if it is not a valid bundle."""
    find, left = shared.of_lines(enumerate(_unpacked_lines(path), start=1), path)
    known = known or Known()
    return [from_json(line, f"{path}, line {number}", find, known) for number, line in left]


def _unpacked_lines(path: Path | str) -> Iterator[str]:
    """Yield the lines of a bundle as they are unpacked, never more than a chunk ahead. Raises ValueError for damage,
    for a line that is too long for a record or is there twice, and for more text than MOST_UNPACKED_BYTES."""
    unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_UNPACKER_BYTES)
    rest, total, before = b"", 0, b""
    try:
        data = contents(path, MOST_PACKED_BYTES)
        while not unpacker.eof:
            chunk = unpacker.decompress(data, _CHUNK_BYTES)
            data = b""
            if not chunk and unpacker.needs_input and not unpacker.eof:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            total += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            if total > MOST_UNPACKED_BYTES or len(rest) > MOST_BYTES:
                is_line = total <= MOST_UNPACKED_BYTES
                says = f"{MOST_BYTES:,} bytes a line" if is_line else f"{MOST_UNPACKED_BYTES:,} bytes"
                raise ValueError(f"{path}: unpacks to more than {says}")
            for line in lines:
                if line == before:
                    raise ValueError(f"{path}: a record is there twice, which no bundle has")
                before = line
                yield line.decode("utf-8")
        if rest:
            yield rest.decode("utf-8")
        if unpacker.unused_data.strip(b"\0"):
            raise EOFError("there is more behind its end")
    except (EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: can't be read as a bundle ({error})") from None


def packed(records: Iterable[Record], is_quick: bool = False) -> bytes:
    """The bytes of a bundle with these records. is_quick: half again as large, in a tenth of the time."""
    preset = 0 if is_quick else 9 | lzma.PRESET_EXTREME
    filters = [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": _DICTIONARY_BYTES}]
    return lzma.compress(lines_of(records), lzma.FORMAT_XZ, lzma.CHECK_CRC64, filters=filters)


def write(records: Iterable[Record], path: Path | str, is_quick: bool = False) -> int:
    """Write a bundle, in one step, and give its size in bytes. ValueError naming the file when that can't be done."""
    path = Path(path)
    if not _is_bundle(path):
        raise ValueError(f"{path}: a bundle's name ends in {SUFFIX}")
    data = packed(records, is_quick)
    write_file(path, data)
    return len(data)


def line_of(record: Record) -> str:
    """A record as one line of JSON, without its end."""
    # In ASCII: text may hold what splitlines() takes for the end of a line, such as U+2028.
    return _COMPACT(record.document())


def digest(records: Iterable[Record]) -> str:
    """Which records these are, in whatever order: "sha256:<hex>" of what their bundle holds."""
    return f"sha256:{hashlib.sha256(lines_of(records)).hexdigest()}"


def lines_of(records: Iterable[Record]) -> bytes:
    """Return the lines of a bundle: what records refer to, then the records, each once."""
    references = References()
    found = {_COMPACT(record.document(references)): record for record in records}
    lines = [shared.line(digest, text) for digest, text in sorted(references.texts.items())]
    lines += sorted(found, key=lambda line: (*_order(found[line]), line))
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _order(record: Record) -> tuple[Any, ...]:
    """Like beside like: a case's worlds follow one another."""
    case = record.case
    names = (case.op, case.dtype, case.accumulator, case.reduction)
    return (*names, case.world_size, case.size_bytes, case.algorithm, record.id, record.started)


def record_files(place: Path) -> list[Path]:
    """The files of records and the bundles of a place: in a folder and below, sorted; a file is itself. ValueError for
    a file with such a name that is no ordinary file: a pipe, a device, a link that leaves the folder."""
    try:
        if not place.is_dir():
            return [place]
    except OSError as error:  # of a name that is too long
        raise ValueError(f"{place}: can't be read ({error.strerror or error})") from None
    found = sorted(
        path
        for pattern in ("*.json", f"*{SUFFIX}")
        for path in below(place, pattern)
        if path.name not in NOT_RECORDS and not is_shared_file(path) and (path.is_symlink() or not path.is_dir())
    )
    for path in found:
        if path.is_symlink() and leaves(path, place):
            raise ValueError(f"{path}: a link that leaves the folder, which is not followed; remove it")
        if kind := kind_of(path):
            raise ValueError(f"{path}: can't be read (it is {kind})")
    return found


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
