"""What people see of records: reports, tables and figures that lie beside them are made again and compared.

Other files are named as not looked at, but for those that commands write.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cases.record.reading import contents, leaves
from cases.record.record import Record
from reports.audit.items import Ground, Outcome, Point, listed, verified_or
from reports.audit.shown_pages import page_points
from reports.audit.shown_pictures import figure_points
from reports.audit.shown_tables import (
    compare_tables,
    other_numbers,
    table_of_csv,
    tables_of_markdown,
    tables_of_text,
)
from reports.record import bundle
from reports.record.seal import MANIFEST, digests_under
from reports.record.signed import SIGNATURES, SIGNED
from reports.table import table
from reports.table.text import counted

MOST_SHOWN_BYTES = 1 << 26
"""Maximum size of a page or a picture that is read: 10,000 records give 30 MB."""

_PAGES = (".html", ".htm", ".xhtml")
_TABLES = (".md", ".csv", ".tsv", ".txt")

_OF_COMMANDS = (
    *("*.json", "configuration.yaml", "source*.diff", f"*{bundle.SUFFIX}"),
    *(MANIFEST, SIGNED, SIGNATURES, ".*.tmp", "*.set_aside"),
)
"""Names of files that commands write, beside what people see, PTX and the configurations of jobs."""

_OF_A_JOB = re.compile("([0-9]{2,9})-configuration[.]yaml")


def beside(place: Path, records: Sequence[Record], is_published: bool = False) -> Iterator[Point]:
    """Yield what comes of all that people see in a folder of records and below, and of the report beside it that has
    its name. is_published: the tables and figures there are compared elsewhere."""
    pages, tables, figures, others = _files(place, _Known.of(records))
    manifests = digests_under([place]) if pages else {}
    for path in pages:
        try:
            text = text_of(path)
        except ValueError as error:
            yield Point(Outcome.NOT_COMPARABLE, str(error))
            continue
        yield from page_points(path.name, text, records, manifests)
    if not is_published:
        for path in tables:
            yield from _table_points(path.name, path.suffix.lower(), text_of(path), records)
        for path in figures:
            yield from figure_points(path.name, text_of(path), records)
    if others:
        names = listed(path.relative_to(place).as_posix() for path in others)
        yield Point(
            Outcome.NOT_COMPARABLE, f"{counted(len(others), 'file')} that symlab does not write, not looked at: {names}"
        )


@dataclass(frozen=True, slots=True)
class _Known:
    """What records say of files beside them: the names of PTX, the texts of users' code, and the numbers of jobs."""

    ptx: frozenset[str]
    kept: frozenset[str]
    jobs: frozenset[int]

    @staticmethod
    def of(records: Sequence[Record]) -> _Known:
        """Return what these records say."""
        entries = {id(one.request.brought): one.request.brought for one in records if one.request.brought}
        return _Known(
            frozenset(f"{one.kernel.ptx_digest.removeprefix('sha256:')}.ptx" for one in records if one.kernel),
            frozenset(name for entry in entries.values() for name in _kept(entry)),
            frozenset(number for one in records for number in (one.request.job, (one.request.jobs or 1) - 1)),
        )

    def has(self, path: Path) -> bool:
        """Whether a file is one of these."""
        job = _OF_A_JOB.fullmatch(path.name)
        if job is not None:
            return int(job[1]) <= max(self.jobs, default=-1)
        if path.suffix == ".ptx":
            return path.parent.name == "ptx" and path.name in self.ptx
        return "/".join(path.parts[-3:]) in self.kept


def _kept(value: object) -> Iterator[str]:
    """Yield the names of kept texts in what a request says of brought code."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from [item] if key == "kept" and isinstance(item, str) else _kept(item)
    elif isinstance(value, list):
        for item in value:
            yield from _kept(item)


def _files(place: Path, known: _Known) -> tuple[list[Path], list[Path], list[Path], list[Path]]:
    """Return the pages, tables, figures and other files of a folder and below, without those that commands write."""
    from reports.html.page_path import page_beside

    named = page_beside(place.resolve())
    found: tuple[list[Path], ...] = ([named] if named.is_file() else [], [], [], [])
    for root, folders, names in os.walk(place):
        folders.sort()
        for name in sorted(names):
            path = Path(root) / name
            suffix = path.suffix.lower()
            is_odd = not path.is_file() or (path.is_symlink() and leaves(path, place))
            if is_odd or known.has(path):
                continue
            if suffix in _PAGES:
                found[0].append(path)
            elif suffix in _TABLES and name != SIGNED:
                found[1].append(path)
            elif suffix == ".svg":
                found[2].append(path)
            elif not any(fnmatch.fnmatchcase(name, pattern) for pattern in _OF_COMMANDS):
                found[3].append(path)
    return found[0], found[1], found[2], found[3]


def _table_points(name: str, suffix: str, text: str, records: Sequence[Record]) -> Iterator[Point]:
    """Yield what comes of a table that is a file, compared with the form of ours that it is nearest to."""
    read = {".md": tables_of_markdown, ".txt": tables_of_text}.get(suffix, table_of_csv)
    shown, others = read(text)
    results = []
    for form in _forms(suffix, records):
        made, made_others = read(form)
        more, less = Counter(others) - Counter(made_others), Counter(made_others) - Counter(others)
        results.append((compare_tables(shown, made), more, less))
    found, more, less = max(results, key=lambda result: (result[0].cells, -len(result[0].odd)))
    if not found.cells and not found.odd:
        yield Point(Outcome.NOT_COMPARABLE, f"{name}: no table of it is one that these records give")
        return
    odd = [*found.odd, *other_numbers(more, less)]
    is_whole = not less  # a form of ours with all that it says, and no excerpt
    odd += [f"it lacks {one}" for one in found.missing if is_whole]
    good = f"{name}: {counted(found.cells, 'cell')} made again; 0 differ"
    yield verified_or(
        [f"{name}: {one}" for one in odd], good, max(found.cells, len(odd)), "cells differ", Ground.RECOMPUTED
    )
    besides = [*found.unknown, *(f"'{one[:60]}'" for one in more.elements())]
    besides += [f"without {one}" for one in found.missing if not is_whole]
    if besides:
        says = f"{name}: {counted(len(besides), 'part')} that these records do not give so: {listed(besides)}"
        yield Point(Outcome.NOT_COMPARABLE, says)


def _forms(suffix: str, records: Sequence[Record]) -> Iterator[str]:
    """Yield the texts that records give in a form: long and wide, and as MLflow has it, with the errors over ranks."""
    from reports.numerics.study import markdown, studied

    if suffix == ".md":
        long = table.markdown(records)
        curves = studied(records)
        yield from [long, table.markdown(records, is_wide=True)]
        yield from ["\n".join([long, markdown(curves)]), markdown(curves)] if curves else []
    elif suffix == ".txt":
        yield from [table.plain(records), table.plain(records, is_wide=True)]
    else:
        yield table.csv_text(records)


def text_of(path: Path) -> str:
    """Return the text of a page, a table or a picture. Raises ValueError if it can't be read."""
    return contents(path, MOST_SHOWN_BYTES).decode("utf-8", "replace")
