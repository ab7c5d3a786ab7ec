"""Kernels that a request names by their place: "my/ring.py:SPEC" or "package.module:SPEC" among its algorithms.

A relative path begins at the working folder, or, where there is no such file, at the project's root, so that
experiments of conf/ find the files beside them (runner/request/experiment_files.py). Where records are read, the file
is taken from this machine by the place that they name, and its digest says whether it is the one that ran: text that
records keep is evidence, and never run.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.baselines import names_for
from kernels.brought import function_at, spec_at
from kernels.catalogue import NAMES, OPS, find
from kernels.sources import ROOT, Source, digest_of, is_foreign, read, sources_of
from kernels.spec import KernelSpec
from reports.record.record import Record
from runner.request.validate import CUSTOM, Request
from runner.request_error import RequestError, near


@dataclass(frozen=True, slots=True)
class Brought:
    """A kernel that a request names by its place. place is as it was written, the way it stands in records."""

    place: str
    spec: KernelSpec

    @property
    def digest(self) -> str:
        """ "sha256:<hex>" of all files that the kernel is made of, as KernelInfo.source_digest."""
        return f"sha256:{digest_of(self.spec.files)}"

    @property
    def sources(self) -> tuple[Source, ...]:
        """The files that the kernel is made of and that are not the project's own, as this process read them."""
        return tuple(one for one in sources_of(self.spec.files) if is_foreign([str(one.path)]))


def is_place(name: str) -> bool:
    """Whether a name of an algorithm is the place of a brought kernel."""
    return ":" in name


def found_at(place: str, folder: Path | None = None) -> Brought:
    """Return the kernel at a place. folder: where relative paths begin; None: the working folder.

    Raises ValueError, in one line, for a place that gives no kernel.
    """
    where = Path(place.rpartition(":")[0]).expanduser()
    name = place.rpartition(":")[2]
    if where.suffix != ".py" and len(where.parts) < 2:
        return Brought(place, spec_at(place))
    return Brought(place, spec_at(f"{where}:{name}", start_of(where, folder)))


def start_of(path: Path, folder: Path | None = None) -> Path:
    """Return the folder that a path of a brought file begins at. folder: see found_at."""
    start = folder or Path.cwd()
    return ROOT if not (start / path).is_file() and (ROOT / path).is_file() else start


def with_names(request: Request, folder: Path | None = None) -> tuple[Request, tuple[Brought, ...]]:
    """Return the request with names of algorithms in place of places, and the kernels that it brings.

    folder: as found_at takes it. RequestError for a place that gives no kernel, a kernel of another op, and one whose
    name another algorithm of the request, of the catalogue or of a library has.
    """
    if isinstance(request.algorithms, str):
        return request, ()
    names: list[str] = []
    found: list[Brought] = []
    for name in request.algorithms:
        if not is_place(name):
            names.append(name)
            continue
        try:
            one = found_at(name, folder)
        except ValueError as error:
            raise RequestError(f"{error} (algorithms)") from error
        _check(one, request.op, found)
        found.append(one)
        names.append(one.spec.algorithm)
    return dataclasses.replace(request, algorithms=tuple(names)), tuple(found)


def _check(one: Brought, op: str, others: Sequence[Brought]) -> None:
    """RequestError for a kernel of another op, and for a name that something else has."""
    spec = one.spec
    if spec.op not in OPS:
        raise RequestError(f"{one.place} is a kernel of the unknown op '{spec.op}' (algorithms), {near(spec.op, OPS)}")
    if spec.op != op:
        raise RequestError(
            f"{one.place} is a kernel of {spec.op}, the job's op is {op} (algorithms), give op={spec.op}"
        )
    other = next((two.place for two in others if two.spec.name == spec.name), "")
    if not other and spec.name in NAMES:
        other = "the catalogue"
    if not other and spec.algorithm in names_for(op):
        other = "a library"
    if other:
        raise RequestError(
            f"{one.place} and {other} both have the name {spec.name} (algorithms), give your kernel a name of its own"
        )


def custom_places(section: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the places that a section `custom` names: of its kernel, its reference, and functions that fill."""
    buffers = section.get("buffers")
    fills = [one.get("fill") for one in buffers.values() if isinstance(one, Mapping)] if buffers else []
    named = [section.get("kernel"), section.get("reference"), *fills]
    return tuple(one for one in named if isinstance(one, str) and is_place(one))


def sources_at(places: Sequence[str], folder: Path | None = None) -> tuple[Source, ...]:
    """Return all files that places are made of and that are not the project's kernels, each once, by name.

    folder: as found_at takes it. Raises ValueError, in one line, for a place that is not here.
    """
    files: list[str] = []
    texts: dict[Path, Source] = {}
    for place in places:
        where = Path(place.rpartition(":")[0]).expanduser()
        if where.suffix not in (".py", ".ptx") and len(where.parts) < 2:
            files += function_at(place).files
            continue
        path = (start_of(where, folder) / where).resolve()
        if not path.is_file():
            raise ValueError(f"{place}: there is no file {path}")
        if path.suffix == ".ptx":
            texts[path] = read(path)
        else:
            files.append(str(path))
    found = [one for one in sources_of(tuple(dict.fromkeys(files))) if is_foreign([str(one.path)])]
    return tuple(sorted([*found, *texts.values()], key=lambda source: (source.name, source.content)))


def digest_of_sources(sources: Sequence[Source]) -> str:
    """Return "sha256:<hex>" of names and contents, as kernels.sources.digest_of makes it."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{source.name}\0{len(source.content)}\0".encode())
        digest.update(source.content)
    return f"sha256:{digest.hexdigest()}"


def recorded_digest_here(record: Record, folder: Path | None = None) -> str:
    """Return the digest that a record's brought kernel, or custom job, has here.

    folder: as found_at takes it. Raises ValueError, in one line, for what is not here.
    """
    if record.case.op != CUSTOM:
        return found_at(recorded_place(record), folder).digest
    section = (record.request.configuration or {}).get("custom")
    if not isinstance(section, Mapping):
        raise ValueError("the record holds no section custom")
    return digest_of_sources(sources_at(custom_places(section), folder))


def recorded_spec(record: Record, folder: Path | None = None) -> KernelSpec:
    """Return the kernel that a record names, as it is here: the catalogue's, or the file at the recorded place.

    folder: as found_at takes it. Raises ValueError, in one line, if there is none here.
    """
    place = recorded_place(record)
    if not place:
        return find(record.case.name)
    spec = found_at(place, folder).spec
    if spec.name != record.case.name:
        raise ValueError(f"{place} is {spec.name} here, and the record's kernel is {record.case.name}")
    return spec


def recorded_place(record: Record, algorithm: str = "") -> str:
    """Return the place of a record's kernel, or of another one of its job; "" if it was not brought."""
    return str(_entry(record, algorithm or record.case.algorithm).get("place") or "")


def differs_here(record: Record, folder: Path | None = None) -> str:
    """Return the remark on a brought kernel whose files are not those that the record names; "" otherwise.

    folder: as found_at takes it.
    """
    place, recorded = recorded_place(record), str(_entry(record, record.case.algorithm).get("digest") or "")
    if not place:
        return ""
    try:
        here = recorded_digest_here(record, folder)
    except ValueError:
        return ""  # it can't run at all: the message of the run says so
    if here == recorded:
        return ""
    what = "made of the files" if record.case.op == CUSTOM else "the file"
    return f"{record.case.name}: {place} is not {what} that ran (recorded {recorded[:19]}.., here {here[:19]}..)"


def described(brought: Sequence[Brought], kept: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a record's request says of brought kernels, by algorithm; None without any.

    kept: what is kept of each one's files, by digest.
    """
    found = {
        one.spec.algorithm: {"place": one.place, "digest": one.digest, **kept.get(one.digest, {})} for one in brought
    }
    return found or None


def _entry(record: Record, algorithm: str) -> Mapping[str, Any]:
    entry = (record.request.brought or {}).get(algorithm)
    return entry if isinstance(entry, Mapping) else {}
