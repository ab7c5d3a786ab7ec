"""The files that a command may run because a record names them: a record can come from anybody.

Its places count only where they lead to files of the project, of the working folder, or of folders that the user names
(--code). All that is found out here is found without importing anything.
"""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.brought import module_files
from kernels.own.described import files_at
from kernels.sources import INSTALLED, ROOT, digest_of, is_foreign, sources_of
from runner.records.scrub import scrubbed

_CONF = ROOT / "conf"
_LIBRARY = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})


@dataclass(frozen=True, slots=True)
class AllowedCode:
    """Folders whose files may run. bases: those that count by default. records: the folders that records were read
    from: between a base and them nothing counts. named: those that the user names, where every file counts.

    changed: whether files may run that are not those that the record names.
    """

    bases: tuple[Path, ...]
    records: tuple[Path, ...] = ()
    named: tuple[Path, ...] = ()
    changed: bool = False

    def refuses(self, files: Iterable[Path]) -> str:
        """Return why files (resolved) may not run, in one line; "" if all may."""
        for file in files:
            if any(file.is_relative_to(folder) for folder in self.named):
                continue
            if not any(self._counts(file, base) for base in self.bases):
                return (
                    f"{file} is not run for a record: it is outside the project and the working folder, or beside the "
                    "record; name its folder with --code if you trust it"
                )
        return ""

    def _counts(self, file: Path, base: Path) -> bool:
        if not file.is_relative_to(base):
            return False
        inner = file.relative_to(base).parts
        if INSTALLED.intersection(inner) or any(file.is_relative_to(folder) for folder in _LIBRARY):
            return False
        return not any(_is_part_of(inner, base, folder) for folder in self.records)


def allowed_code(
    records: Sequence[Path] = (), named: Sequence[Path] = (), folder: Path | None = None, changed: bool = False
) -> AllowedCode:
    """Return what may run of records that were read from places. folder: the working folder, unless it is this one.

    The project's conf/ counts beside its root, so that its examples run where records lie in the root itself.
    """
    bases = (ROOT, _CONF, (folder or Path.cwd()).resolve())
    found = tuple(_folder_of(place.resolve()) for place in records)
    return AllowedCode(bases, found, tuple(one.expanduser().resolve() for one in named), changed)


def start_of(path: Path, folder: Path | None = None) -> Path:
    """Return the folder that a path of a brought file begins at. folder: see found_at of bringing."""
    start = folder or Path.cwd()
    return ROOT if not (start / path).is_file() and (ROOT / path).is_file() else start


def files_of(place: str, folder: Path | None, is_kernel: bool = False) -> tuple[Path, ...]:
    """Return the resolved files that loading a place runs first; the last is its own. Nothing is imported.

    folder: as found_at of bringing takes it. is_kernel: it may be a PTX file. ValueError for what is not here.
    """
    where = place.rpartition(":")[0]
    if not (where.endswith((".py", ".yaml")) or "/" in where or (is_kernel and where.endswith(".ptx"))):
        return module_files(where)
    path = Path(where).expanduser()
    file = (start_of(path, folder) / path).resolve()
    if not file.is_file():
        raise ValueError(f"{place}: there is no file {file}")
    return files_at(file, place.rpartition(":")[2]) if file.suffix == ".yaml" else (file,)


def has_recorded_files(place: str, folder: Path | None, entry: Mapping[str, Any]) -> bool:
    """Return whether a KernelSpec's place leads to the files that a record's entry names. Nothing is imported."""
    found = files_of(place, folder)
    files = tuple(map(str, found if found[-1].suffix == ".yaml" else found[-1:]))
    if f"sha256:{digest_of(files)}" == entry.get("digest"):
        return True
    listed = entry.get("files")
    if not isinstance(listed, Sequence) or not listed:
        return False
    recorded = {(str(one.get("name")), str(one.get("digest"))) for one in listed if isinstance(one, Mapping)}
    here = [one for one in sources_of(files) if is_foreign([str(one.path)])]
    return {(scrubbed(one.name), f"sha256:{hashlib.sha256(one.content).hexdigest()}") for one in here} <= recorded


def _folder_of(place: Path) -> Path:
    """The folder that came with a place of records: itself, a record file's folder; a bundle is a file alone."""
    return place.parent if place.is_file() and place.suffix == ".json" else place


def _is_part_of(inner: tuple[str, ...], base: Path, records: Path) -> bool:
    """Whether a file of a base, by its parts from there, lies in what holds the records: all of the base, where the
    base lies in the records' folder and is not the project's conf/; else the base's folder that leads to them."""
    if base.is_relative_to(records):
        return base != _CONF or records == _CONF
    return records.is_relative_to(base) and records.relative_to(base).parts[0] == inner[0]
