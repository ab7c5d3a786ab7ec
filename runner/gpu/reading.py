"""From files of conf/gpu to types of GPUs: every value checked, every value with its source.

A type that is `like` another has all that it does not say itself from there, the sources and floors included. What is
wrong is a RequestError in one line that names the file and the key.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from runner.gpu.gpu_type import FLOOR_NAMES, Floors, GpuType, Source, SourceKind, impossible
from runner.gpu.names import CONF, KEY, SUFFIX, gpu_names
from runner.gpu.schema import SECTIONS, GpuTypeSchema
from runner.request_error import RequestError, first_line, near
from simulator.gpu import Gpu

_MAY_BE_ZERO = ("reserved_shared_bytes_per_block",)
_DATE = re.compile(r"\b20\d\d-(0[1-9]|1[0-2])(-\d\d)?\b")
_FORMS = "'datasheet: which', 'measured: when (2026-11) and on what' or 'assumed: why'"


@dataclass(slots=True)
class _Told:
    """What files say of a type so far: names, values and sources by key ("limits.arch"), floors."""

    texts: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, Source] = field(default_factory=dict)
    floors: Floors | None = None


def gpu_type(given: str, folders: Sequence[Path] = (CONF,)) -> GpuType:
    """Return the type of a name, or of a path of a file that ends in .yaml.

    folders: of configurations; the first that has the name in gpu/ is taken. RequestError for an unknown name, and for
    a file with an unknown key, a value of another type, a value without a source, or a value that is missing, and for
    floors that its links can't have (gpu_type.impossible).
    """
    place, told = _told(given, folders, ())
    values = told.values
    for section, noun in SECTIONS.items():
        for one in dataclasses.fields(noun):
            key = f"{section}.{one.name}"
            if key not in values and key != "limits.name":
                raise RequestError(
                    f"{place}: {key} is missing, give {{value: .., source: ..}}, or like: and another type"
                )
    name = told.texts["name"]
    parts = {section: _section(section, noun, values, name) for section, noun in SECTIONS.items()}
    if told.floors is not None and (problem := impossible(told.floors, parts["links"])):
        raise RequestError(f"{place}: {problem} (floors)")
    if not re.fullmatch(r"sm_\d+", values["limits.arch"]):
        raise RequestError(f"{place}: '{values['limits.arch']}' is no architecture (limits.arch), give one as sm_90")
    return GpuType(
        name=name,
        title=told.texts.get("title", name),
        devices=tuple(told.texts.get("devices", ())),
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


def _told(given: str, folders: Sequence[Path], above: tuple[str, ...]) -> tuple[str, _Told]:
    """The file's place in messages, and what it says together with what it is like. above: who is like it."""
    path = _path(given, folders)
    place = f"gpu/{path.name}" if not given.endswith(SUFFIX) else given
    if given in above:
        raise RequestError(f"the GPU {given} is like itself ({KEY}), name another GPU")
    read = _read(path, place)
    told = _told(read.like, folders, (*above, given))[1] if read.like is not None else _Told()
    told.texts |= {"name": read.name or path.stem}
    for key in ("title", "devices"):
        if read[key] is not None:
            told.texts[key] = OmegaConf.to_object(read[key]) if key == "devices" else read[key]
    named = {str(name): _source(text, f"sources.{name}", place, {}) for name, text in read.sources.items()}
    for section in SECTIONS:
        for key, one in read[section].items():
            if one is not None:
                _take(told, f"{section}.{key}", one, named, place)
    if read.floors is not None:
        told.floors = _floors(read.floors, named, place)
    return place, told


def _read(path: Path, place: str) -> DictConfig:
    """A file's content by the schema. RequestError for a file or a key that is wrong."""
    try:
        status = path.stat()
    except OSError as error:
        raise RequestError(f"{place} can't be read: {error.strerror} ({KEY}), write it as gpu/h100.yaml") from error
    return _read_once(path, place, status.st_mtime_ns, status.st_size)


@cache
def _read_once(path: Path, place: str, modified_ns: int, size_bytes: int) -> DictConfig:
    """Reading takes 40 ms, and every job of a sweep asks. A file that has changed is read again."""
    try:
        content = OmegaConf.load(path)
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise RequestError(f"{place} can't be read: {first_line(error)} ({KEY}), write it as gpu/h100.yaml") from error
    if not isinstance(content, DictConfig):
        raise RequestError(f"{place} describes no GPU ({KEY}), write it as gpu/h100.yaml")
    _check_keys(content, GpuTypeSchema, "", place)
    try:
        merged = OmegaConf.merge(OmegaConf.structured(GpuTypeSchema), content)
        OmegaConf.resolve(merged)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None) or getattr(error, "key", None) or "value"
        raise RequestError(f"{place}: {first_line(error)} ({key}), write it as gpu/h100.yaml") from error
    assert isinstance(merged, DictConfig)
    return merged


def _check_keys(content: object, schema: type, above: str, place: str) -> None:
    """RequestError for a key that the schema does not have, and for a value that stands without its source."""
    if not isinstance(content, DictConfig):
        return
    kinds = typing.get_type_hints(schema)
    for key in map(str, content):
        name = f"{above}{key}"
        if key not in kinds:
            beyond = f", a limit stands in limits: {{{key}: ..}}" if key in _LIMITS and not above else ""
            raise RequestError(f"{place}: unknown key '{key}' ({name}){beyond or ', ' + near(key, kinds)}")
        inner = next((one for one in (kinds[key], *typing.get_args(kinds[key])) if dataclasses.is_dataclass(one)), None)
        value = content._get_node(key)
        if inner is None or value is None or OmegaConf.is_missing(content, key) or content[key] is None:
            continue
        has_source = {one.name for one in dataclasses.fields(inner)} == {"value", "source"}
        if has_source:
            _check_sourced(content[key], name, place)
        elif not isinstance(content[key], DictConfig):
            raise RequestError(f"{place}: {name} is a section and not '{content[key]}' ({name}), give it keys")
        _check_keys(content[key], typing.cast(type, inner), f"{name}.", place)


def _check_sourced(value: object, name: str, place: str) -> None:
    if not isinstance(value, DictConfig):
        raise RequestError(f"{place}: {name} has no source ({name}), give {{value: {value}, source: ..}} with {_FORMS}")
    for key in ("value", "source"):
        if value.get(key) in (None, ""):
            raise RequestError(f"{place}: {name} has no {key} ({name}), give {{value: .., source: ..}} with {_FORMS}")


_LIMITS = frozenset(one.name for one in dataclasses.fields(Gpu))


def _take(told: _Told, key: str, one: DictConfig, named: Mapping[str, Source], place: str) -> None:
    """Take a value with its source. RequestError for one that can't be."""
    value = one.value
    if type(value) in (int, float):
        least = 0 if key.rpartition(".")[2] in _MAY_BE_ZERO else 1
        if not least <= value < float("inf"):
            raise RequestError(f"{place}: {value} is no number for {key} ({key}), give {least} or more")
    told.values[key] = value
    told.sources[key] = _source(one.source, key, place, named)


def _source(text: str, key: str, place: str, named: Mapping[str, Source]) -> Source:
    """A source from its name or its text. RequestError for another one."""
    if text in named:
        return named[text]
    kind, colon, words = text.partition(":")
    if not colon or kind not in tuple(SourceKind) or not words.strip():
        known = f"a name in sources ({', '.join(named)}), or " if named else ""
        raise RequestError(f"{place}: '{text}' is no source ({key}), give {known}{_FORMS}")
    if kind == SourceKind.measured and not _DATE.search(words):
        raise RequestError(f"{place}: '{text}' does not say when it was measured ({key}), add the date, as 2026-11-22")
    return Source(SourceKind(kind), words.strip())


def _floors(given: DictConfig, named: Mapping[str, Source], place: str) -> Floors:
    """The section of floors. RequestError for floors that were not measured."""
    if missing := sorted(OmegaConf.missing_keys(given)):
        key = missing[0].rpartition(".")[2]
        raise RequestError(f"{place}: floors have no {key} (floors.{key}), give it")
    values: Any = OmegaConf.to_object(given)
    source = _source(values.source, "floors.source", place, named)
    if source.kind is not SourceKind.measured:
        raise RequestError(f"{place}: floors are measured, and '{source}' is not (floors.source), leave them out")
    try:
        return Floors(
            source=source,
            ranks=values.ranks,
            records=tuple(values.records),
            **{name: getattr(values, name) for name in FLOOR_NAMES},
        )
    except ValueError as error:
        raise RequestError(f"{place}: {error} (floors)") from error


def _section(section: str, noun: type, values: Mapping[str, Any], name: str) -> Any:
    """The noun of a section."""
    named = {"name": name} if noun is Gpu else {}
    keys = [one.name for one in dataclasses.fields(noun) if one.name not in named]
    return noun(**named, **{key: values[f"{section}.{key}"] for key in keys})
