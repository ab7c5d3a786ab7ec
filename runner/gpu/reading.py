"""From files of conf/gpu to types of GPUs: every value checked, every value with its source.

A type that is `like` another has all that it does not say itself from there, the sources and floors included. What is
wrong is a RequestError in one line that names the file and the key.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from cases.documents import decoded
from runner.gpu.gpu_type import Clocks, Floors, GpuType, Links, Memory, Source, SourceKind, Switch, impossible
from runner.gpu.names import CONF, KEY, SUFFIX, gpu_names
from runner.request_error import RequestError, first_line, near
from simulator.gpu import Gpu

SECTIONS: Mapping[str, type] = {"limits": Gpu, "clocks": Clocks, "memory": Memory, "links": Links, "switch": Switch}
"""The sections of a file whose values have a source each, and the nouns that they become."""

_TEXTS = ("name", "title")
_KEYS = ("like", *_TEXTS, "devices", "sources", *SECTIONS, "floors")
_MAY_BE_ZERO = ("reserved_shared_bytes_per_block",)
_DATE = re.compile(r"\b20\d\d-(0[1-9]|1[0-2])(-\d\d)?\b")
_FORMS = "'datasheet: which', 'measured: when (2026-11) and on what' or 'assumed: why'"


@dataclass(slots=True)
class _Told:
    """What files say of a type so far: names, values and sources by key ("limits.arch"), floors."""

    texts: dict[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    floors: Floors | None = None


def gpu_type(given: str, folders: Sequence[Path] = (CONF,)) -> GpuType:
    """Return the type of a name, or of a path of a file that ends in .yaml.

    folders: of configurations; the first that has the name in gpu/ is taken. RequestError for an unknown name, and for
    a file with an unknown key, a value of another type, a value without a source, or a value that is missing, and for
    floors that its links can't have (gpu_type.impossible).
    """
    told = _told(given, folders, ())
    name = told.texts["name"]
    with _of_file(given):
        parts = {section: _noun(section, noun, told) for section, noun in SECTIONS.items()}
        if told.floors is not None and (problem := impossible(told.floors, parts["links"])):
            raise ValueError(f"{problem} (floors)")
        if not re.fullmatch(r"sm_\d+", arch := told.values["limits.arch"]):
            raise ValueError(f"'{arch}' is no architecture (limits.arch), give one as sm_90")
    return GpuType(
        name=name,
        title=told.texts.get("title", name),
        devices=told.devices,
        sources=told.sources,
        floors=told.floors,
        **parts,
    )


def type_of_device(device: str, folders: Sequence[Path] = (CONF,)) -> str:
    """Return the name of the type of a GPU that CUDA reports by a name ("NVIDIA H200"); "" if none names it."""
    return next((name for name in gpu_names(folders) if device in gpu_type(name, folders).devices), "")


def _path(given: str, folders: Sequence[Path]) -> Path:
    if given.endswith(SUFFIX):
        path = Path(given).expanduser()
        if not path.is_file():
            raise RequestError(f"there is no file {given} ({KEY}), give a file of a GPU, or {_known(folders)}")
        return path
    known = gpu_names(folders)
    if given not in known:
        raise RequestError(f"unknown GPU '{given}' ({KEY}), {near(given, known)}")
    return next(one for folder in folders if (one := folder / "gpu" / f"{given}{SUFFIX}").is_file())


def _known(folders: Sequence[Path]) -> str:
    return ", ".join(gpu_names(folders))


@contextmanager
def _of_file(given: str) -> Iterator[None]:
    """Within, a ValueError becomes a RequestError that names the file of a type."""
    try:
        yield
    except RequestError:
        raise
    except ValueError as error:
        place = given if given.endswith(SUFFIX) else f"gpu/{given}{SUFFIX}"
        raise RequestError(f"{place}: {error}") from error


def _told(given: str, folders: Sequence[Path], above: tuple[str, ...]) -> _Told:
    """What the file says together with what it is like. above: who is like it."""
    path = _path(given, folders)
    if given in above:
        raise RequestError(f"the GPU {given} is like itself ({KEY}), name another GPU")
    with _of_file(given):
        said = _section(_read(path), _KEYS, "")
        like = decoded(str, said.get("like", ""), "like")
        told = _told(like, folders, (*above, given)) if like else _Told()
        told.texts["name"] = path.stem
        told.texts |= {key: decoded(str, said[key], key) for key in _TEXTS if key in said}
        told.devices = decoded(tuple[str, ...], said["devices"], "devices") if "devices" in said else told.devices
        sources = said.get("sources", {})
        named = {
            name: _source(text, f"sources.{name}", {}) for name, text in _section(sources, sources, "sources").items()
        }
        for section, noun in SECTIONS.items():
            kinds = {key: kind for key, kind in typing.get_type_hints(noun).items() if key != "name"}
            for key, one in _section(said.get(section), kinds, section).items():
                _take(told, f"{section}.{key}", kinds[key], one, named)
        if "floors" in said:
            told.floors = _floors(said["floors"], named)
    return told


def _read(path: Path) -> object:
    """A file's content. ValueError for one that can't be read."""
    try:
        status = path.stat()
        return _read_once(path, status.st_mtime_ns, status.st_size)
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise ValueError(f"it can't be read: {first_line(error)} ({KEY}), write it as gpu/h100.yaml") from error


@cache
def _read_once(path: Path, modified_ns: int, size_bytes: int) -> object:
    """Reading takes 40 ms, and every job of a sweep asks. A file that has changed is read again."""
    return OmegaConf.to_container(OmegaConf.load(path), resolve=True)


def _section(given: object, known: Collection[str], name: str) -> dict[str, Any]:
    """The values of a section that are there. ValueError for what is no section, and for a key that is not known."""
    if not isinstance(given or {}, Mapping):
        no_file = f"it describes no GPU ({KEY}), write it as gpu/h100.yaml"
        raise ValueError(f"{name} is a section and not '{given}' ({name}), give it keys" if name else no_file)
    found = {str(key): value for key, value in (given or {}).items()}  # type: ignore[attr-defined]
    for key in found:
        if key not in known:
            beyond = f"a limit stands in limits: {{{key}: ..}}" if not name and key in _LIMITS else near(key, known)
            raise ValueError(f"unknown key '{key}' ({f'{name}.{key}' if name else key}), {beyond}")
    return {key: value for key, value in found.items() if value is not None}


_LIMITS = frozenset(one.name for one in dataclasses.fields(Gpu))


def _take(told: _Told, key: str, kind: type, given: object, named: Mapping[str, Source]) -> None:
    """Take a value with its source. ValueError for one that can't be."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{key} has no source ({key}), give {{value: {given}, source: ..}} with {_FORMS}")
    said = _section(given, ("value", "source"), key)
    if missing := [one for one in ("value", "source") if said.get(one, "") == ""]:
        raise ValueError(f"{key} has no {missing[0]} ({key}), give {{value: .., source: ..}} with {_FORMS}")
    value: Any = decoded(kind, said["value"], key)
    least = 0 if key.rpartition(".")[2] in _MAY_BE_ZERO else 1
    if type(value) in (int, float) and value < least:
        raise ValueError(f"{value} is no number for {key} ({key}), give {least} or more")
    told.values[key], told.sources[key] = value, _source(said["source"], key, named)


def _source(given: object, key: str, named: Mapping[str, Source]) -> Source:
    """A source from its name or its text. ValueError for another one."""
    text = str(given)
    if text in named:
        return named[text]
    kind, colon, words = text.partition(":")
    if not colon or kind not in tuple(SourceKind) or not words.strip():
        known = f"a name in sources ({', '.join(named)}), or " if named else ""
        raise ValueError(f"'{text}' is no source ({key}), give {known}{_FORMS}")
    if kind == SourceKind.measured and not _DATE.search(words):
        raise ValueError(f"'{text}' does not say when it was measured ({key}), add the date, as 2026-11-22")
    return Source(SourceKind(kind), words.strip())


def _floors(given: object, named: Mapping[str, Source]) -> Floors:
    """The section of floors. ValueError for floors that were not measured."""
    kinds = typing.get_type_hints(Floors)
    said = _section(given, kinds, "floors")
    for key in ("source", "ranks"):
        if key not in said:
            raise ValueError(f"floors have no {key} (floors.{key}), give it")
    source = _source(said.pop("source"), "floors.source", named)
    if source.kind is not SourceKind.measured:
        raise ValueError(f"floors are measured, and '{source}' is not (floors.source), leave them out")
    values = {key: _floor(kinds[key], value, f"floors.{key}") for key, value in said.items()}
    try:
        return Floors(source=source, **values)
    except ValueError as error:
        raise ValueError(f"{error} (floors)") from error


def _floor(kind: Any, given: Any, key: str) -> Any:
    """A floor: a number, or numbers by count."""
    if typing.get_origin(kind) is not Mapping:
        return decoded(kind, given, key)
    if not isinstance(given, Mapping):
        raise ValueError(f"{key} is {given}, give numbers by count, as {{1: 12.5, 8: 90}}")
    return {decoded(int, count, key): decoded(float, one, f"{key}.{count}") for count, one in given.items()}


def _noun(section: str, noun: type, told: _Told) -> Any:
    """The noun of a section. ValueError for a value that no file says."""
    values: dict[str, Any] = {"name": told.texts["name"]} if noun is Gpu else {}
    for one in dataclasses.fields(noun):
        key = f"{section}.{one.name}"
        if key not in told.values and one.name not in values:
            raise ValueError(f"{key} is missing, give {{value: .., source: ..}}, or like: and another type")
        values.setdefault(one.name, told.values.get(key))
    return noun(**values)
