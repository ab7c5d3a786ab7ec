"""Kernels that a request names by their place: "my/ring.py:SPEC" or "package.module:SPEC" among its algorithms.

A relative path begins at the working folder, or, where there is no such file, at the project's root, so that
experiments of conf/ find the files beside them (runner/request/experiment_files.py). Where records are read, the file
is taken from this machine by the place that they name, and its digest says whether it is the one that ran: text that
records keep is evidence, and never run. Places of records lead only to files that may run (allowed_code.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases.ops import OPS
from cases.record.record import Record
from kernels.baselines import names_for
from kernels.brought import spec_at
from kernels.catalogue import find, is_known
from kernels.own.described import variants
from kernels.sources import ROOT, Source, digest_of, is_foreign, name_of, read, sources_of
from kernels.spec import KernelSpec
from runner.case.allowed_code import AllowedCode, files_of, has_recorded_files, start_of
from runner.request.chooser import BEST
from runner.request.sizes import AUTO
from runner.request.validate import CUSTOM, Request
from runner.request_error import RequestError, naming, near
from symlab.rooms import part_of

ALL_VALUES = "@all"
"""What stands behind an entry's name for all combinations of its parameters."""


@dataclass(frozen=True, slots=True)
class Brought:
    """A kernel that a request names by its place. place is as it was written, the way it stands in records."""

    place: str
    spec: KernelSpec

    @property
    def entry(self) -> str:
        """The place without values of parameters."""
        return self.place.rpartition(":")[0] + ":" + self.place.rpartition(":")[2].partition("@")[0]

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
    if where.suffix not in (".py", ".yaml") and len(where.parts) < 2:
        return Brought(place, spec_at(place))
    return Brought(place, spec_at(f"{where}:{name}", start_of(where, folder)))


def with_names(request: Request, folder: Path | None = None) -> tuple[Request, tuple[Brought, ...]]:
    """Return the request with names of algorithms in place of places, and the kernels that it brings.

    folder: as found_at takes it. RequestError for a place that gives no kernel, a kernel of another op, and one whose
    name another algorithm of the request, of the catalogue or of a library has.
    """
    if isinstance(request.algorithms, str):
        return request, ()
    names: list[str] = []
    found: list[Brought] = []
    with naming("algorithms"):
        asked = [one for name in request.algorithms for one in _written_out(name, folder)]
    for name in asked:
        if not is_place(name):
            names.append(name)
            continue
        with naming("algorithms"):
            one = found_at(name, folder)
        _check(one, request.op, found)
        found.append(one)
        names.append(one.spec.algorithm)
    for place, digest in chosen_places(request).items():
        if all(one.place != place for one in found):
            found.append(_chosen(place, digest, folder))
    return dataclasses.replace(request, algorithms=tuple(names)), tuple(found)


def chosen_places(request: Request) -> dict[str, str]:
    """Return the places that the table of algorithms=best may choose, with the digests that it was made with."""
    if isinstance(request.algorithms, str) or BEST not in request.algorithms or request.tuned == AUTO:
        return {}
    found: dict[str, str] = part_of("tuned, its own kernels")(request.tuned, request.op)
    return found


def _chosen(place: str, digest: str, folder: Path | None) -> Brought:
    """The kernel at a place of a table. RequestError if it is another one by now."""
    with naming("tuned"):
        one = found_at(place, folder)
    if one.digest != digest:
        raise RequestError(
            f"{place} is not what was searched (tuned): {one.digest[:19]}.. here, {digest[:19]}.. there, search again"
        )
    return one


def _written_out(place: str, folder: Path | None) -> tuple[str, ...]:
    """The places that "kernels.yaml:add@all" stands for, one for each combination of parameters; another as it is."""
    where, _, name = place.rpartition(":")
    if not (where.endswith(".yaml") and name.endswith(ALL_VALUES)):
        return (place,)
    file = files_of(place.removesuffix(ALL_VALUES), folder)[-1]
    return tuple(f"{where}:{one}" for one in variants(file, name.removesuffix(ALL_VALUES)))


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
    if not other and is_known(spec.name):
        other = "the catalogue"
    if not other and spec.algorithm in names_for(op):
        other = "a library"
    if other:
        raise RequestError(
            f"{one.place} and {other} both have the name {spec.name} (algorithms), give your kernel a name of its own"
        )


def custom_places(section: Mapping[str, Any]) -> dict[str, str]:
    """Return the places that a section `custom` names, by role: its kernel, its reference, functions that fill."""
    named = {"kernel": section.get("kernel"), "reference": section.get("reference")}
    then = section.get("then")
    for number, one in enumerate(then if isinstance(then, Sequence) else (), start=1):
        named[f"kernel {number}"] = one.get("kernel") if isinstance(one, Mapping) else None
    buffers = section.get("buffers")
    for name, one in buffers.items() if isinstance(buffers, Mapping) else ():
        named[f"fill of {name}"] = one.get("fill") if isinstance(one, Mapping) else None
    return {role: one for role, one in named.items() if isinstance(one, str) and is_place(one)}


def custom_sources(section: Mapping[str, Any], folder: Path | None = None) -> tuple[Source, ...]:
    """Return all files that a section `custom` names, those that they import, and that are not the project's kernels,
    each once, by name. folder: as found_at takes it. Raises ValueError, in one line, for a place that is not here."""
    found = {
        one.path: one
        for role, place in custom_places(section).items()
        for one in _sources_at(files_of(place, folder, role.startswith("kernel"))[-1])
    }
    return tuple(sorted(found.values(), key=lambda source: (source.name, source.content)))


def custom_digest(section: Mapping[str, Any], folder: Path | None = None) -> str:
    """Return "sha256:<hex>" of what each role of a section `custom` is made of: its place, and names and contents of
    files. Names are paths from the project's root, else from the file that the place names."""
    digest = hashlib.sha256()
    for role, place in sorted(custom_places(section).items()):
        file = files_of(place, folder, role.startswith("kernel"))[-1]
        where, _, name = place.rpartition(":")
        path = Path(where).expanduser()
        said = name_of(file) if path.is_absolute() else os.path.normpath(path)
        digest.update(f"{role}\0{said}\0{name}\0".encode())
        for source in _sources_at(file):
            is_ours = source.path.is_relative_to(ROOT)
            called = source.name if is_ours else Path(os.path.relpath(source.path, file.parent)).as_posix()
            digest.update(f"{called}\0{len(source.content)}\0".encode())
            digest.update(source.content)
    return f"sha256:{digest.hexdigest()}"


def _sources_at(file: Path) -> tuple[Source, ...]:
    """A file, and of a Python file all that it imports, without the project's kernels."""
    if file.suffix != ".py":
        return (read(file),)
    return tuple(one for one in sources_of((str(file),)) if is_foreign([str(one.path)]))


def recorded_digest_here(record: Record, folder: Path | None = None) -> str:
    """Return the digest that a record's brought kernel, or custom job, has here. A brought kernel is loaded for it.

    folder: as found_at takes it. Raises ValueError, in one line, for what is not here.
    """
    if record.case.op != CUSTOM:
        return found_at(recorded_place(record), folder).digest
    return custom_digest(_section(record), folder)


def _section(record: Record) -> Mapping[str, Any]:
    section = (record.request.configuration or {}).get("custom")
    if not isinstance(section, Mapping):
        raise ValueError("the record holds no section custom")
    return section


def refuse_recorded(record: Record, folder: Path | None, code: AllowedCode) -> None:
    """Raise ValueError, in one line, for a record that names a file that is not here or may not run. Nothing is
    imported. folder: as found_at takes it."""
    if record.case.op == CUSTOM:
        _refuse(custom_places(_section(record)), folder, code)
    elif place := recorded_place(record):
        _refuse({"algorithm": place}, folder, code)


def refuse_requested(request: Request, folder: Path | None, code: AllowedCode) -> None:
    """Raise RequestError for a request, rebuilt from records, that names a file that is not here or may not run."""
    names = () if isinstance(request.algorithms, str) else request.algorithms
    places = {name: name for name in (*names, *chosen_places(request)) if is_place(name)}
    try:
        _refuse(places, folder, code)
        _refuse(custom_places(request.custom or {}), folder, code)
    except ValueError as error:
        raise RequestError(f"{error} (RECORDS)") from error


def _refuse(places: Mapping[str, str], folder: Path | None, code: AllowedCode) -> None:
    for role, place in places.items():
        try:
            files = files_of(place, folder, role.startswith("kernel"))
        except ValueError as error:
            path = Path(place.rpartition(":")[0]).expanduser()
            is_relative = path.suffix in (".py", ".yaml", ".ptx") and not path.is_absolute()
            raise ValueError(
                f"{error}{'; start in the folder that the command ran in' if is_relative else ''}"
            ) from None
        if reason := code.refuses(files):
            raise ValueError(f"{place}: {reason}")


def is_other_code(record: Record, algorithm: str, folder: Path | None = None) -> bool:
    """Return whether a brought kernel of a record's job leads to files other than the recorded. Nothing is imported.

    ValueError for what is not here.
    """
    entry = _entry(record, algorithm)
    if record.case.op == CUSTOM:
        return custom_digest(_section(record), folder) != entry.get("digest")
    return not has_recorded_files(recorded_place(record, algorithm), folder, entry)


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

    folder: as found_at takes it. Only files that the record names are loaded for it, and refuse_recorded comes first.
    """
    algorithm = record.case.algorithm
    place, recorded = recorded_place(record), str(_entry(record, algorithm).get("digest") or "")
    if not place:
        return ""
    try:
        if record.case.op != CUSTOM and is_other_code(record, algorithm, folder):
            here = f"sha256:{digest_of((str(files_of(place, folder)[-1]),))}"
        else:
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
