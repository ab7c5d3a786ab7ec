"""Override lines of the command line and keys of files: read by Hydra's grammar, and checked against the table of keys.

What is wrong is found here, before Hydra composes, so that the message can say what would be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString
from omegaconf import BooleanNode, FloatNode, IntegerNode, StringNode
from omegaconf.errors import OmegaConfBaseException

from runner.request.schema import KEYS, SECTIONS, Key
from runner.request.sizes import written
from runner.request_error import RequestError, near

GROUPS = ("exp", "fabric", "track")
"""Keys that choose a file of conf/; fabric and track are sections, too."""

SHORT = {"sizes": "sizes.list", "check": "check.results"}
"""Sections whose name, with a value that is no dictionary, is short for one of their keys."""

LISTS = ("algorithms", "baselines", "sizes", "sizes.list")
"""Keys that take a list."""

_NODES: dict[Any, Any] = {bool: BooleanNode, int: IntegerNode, float: FloatNode, str: StringNode}
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def parsed(lines: Iterable[str]) -> list[Override]:
    """Parse override lines. RequestError for one that can't be meant; HydraException for one that can't be read."""
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    overrides = list(parser.parse_overrides(list(lines)))
    if any(one.key_or_group == "hydra.searchpath" for one in overrides):
        return overrides  # it may add groups, so that a key is one
    for override in overrides:
        if override.is_delete() or override.package is not None:
            continue
        key = override.key_or_group
        if not key:
            raise RequestError(f"'{override.input_line}' has no key (command line), write overrides as key=value")
        if key == "hydra" and not isinstance(override.value(), dict):
            raise RequestError(f"hydra is a section ({override.input_line}), give one of its keys, such as hydra.mode")
        for value in _values(override):
            if key in GROUPS and not (isinstance(value, dict) and key != "exp"):
                _check_choice(key, value)
            elif key in KEYS or not (_is_open(key) or loader.get_group_options(key)):
                check_value(key, value)
    return overrides


def _is_open(key: str) -> bool:
    """Whether the table does not know what lies in a section: Hydra's own, and that of op=custom."""
    return key.partition(".")[0].partition("/")[0] in ("hydra", "custom")


def check_value(name: str, value: object, where: str = "") -> None:
    """RequestError for an unknown key, and for a value of another kind than the key's.

    where is the file that has it, such as " in exp/mine.yaml". A reference, ${..}, is OmegaConf's to resolve.
    """
    if name in SECTIONS:
        if isinstance(value, Mapping):
            for inner, one in value.items():
                check_value(f"{name}.{inner}", one, where)
            return
        if isinstance(value, str) and "${" in value:
            return
        if value is None or name not in SHORT or (name == "sizes" and isinstance(value, bool)):
            keys = [key for key in KEYS if key.startswith(f"{name}.")]
            raise RequestError(f"{name} is a section and not {written(value)} ({name}{where}), give {keys[0]}=.., ..")
        name = SHORT[name]
    if name not in KEYS:
        section = name.rpartition(".")[0]
        beside = [key.rpartition(".")[2] for key in (*KEYS, *SECTIONS) if key.rpartition(".")[0] == section and key]
        raise RequestError(f"unknown key '{name}' ({name}{where}), {near(name.rpartition('.')[2], beside)}")
    if not (isinstance(value, str) and "${" in value):
        _check_kind(KEYS[name], value, where)


def _check_kind(key: Key, value: object, where: str) -> None:
    if key.kind not in _NODES and not key.words:
        return
    if value is None:
        if key.is_optional:
            return
        raise RequestError(f"{key.name} is null ({key.name}{where}), give {key.wanted}")
    if key.kind is not bool and key.words:
        if value == "???" or str(value) in key.words:
            return
        name = key.name.rpartition(".")[2]
        raise RequestError(f"unknown {name} '{value}' ({key.name}{where}), {near(str(value), key.words)}")
    try:
        _NODES[key.kind](value)
        is_of_kind = key.kind is not bool or not isinstance(value, (int, float)) or value in (0, 1)
    except OmegaConfBaseException:
        is_of_kind = False
    if not is_of_kind:  # OmegaConf takes other numbers for true
        raise RequestError(f"{written(value)} is not {_KINDS[key.kind]} ({key.name}{where}), give {key.wanted}")


def _values(override: Override) -> list[Any]:
    """The value of an override, or all values of a sweep that lists them."""
    if not override.is_sweep_override():
        return [override.value()]
    if not override.is_discrete_sweep():
        return []
    return list(override.sweep_iterator(transformer=_as_it_is))


def _as_it_is(value: Any) -> Any:
    """Take a value of a sweep as Hydra has read it."""
    return value.text if isinstance(value, QuotedString) else value


def _check_choice(group: str, value: object) -> None:
    """RequestError for a value that is no name of a file in a group."""
    if isinstance(value, list) and value:
        again = f"sweep over several: -m {'+' if group == 'exp' else ''}{group}=a,b"
        raise RequestError(f"'{value}' is a list ({group}), give one name, or {again}")
    known = group_options(group)
    if value in (None, "", "???", []) or not isinstance(value, str):
        raise RequestError(f"{written(value)} is not a name ({group}), known: {', '.join(known)}")
    if value.startswith("/") or ".." in Path(value).parts or value.endswith((".yaml", ".yml")):
        raise RequestError(
            f"'{value}' is a path ({group}), give the name of a file in {group}/ without .yaml; --config-dir adds a "
            "folder that has one"
        )


def text_of(override: Override) -> str:
    """The override as it was written; sizes=[1K,4K] and sizes=4K are short for sizes.list=.., check=false for
    check.results=false."""
    line, key = str(override.input_line), override.key_or_group
    if key in SHORT and not isinstance(override.value(), dict) and not override.is_delete():
        return SHORT[key] + line[line.index("=") :]
    return line


def written_out(line: str) -> str:
    """A line that is short for another one as that: check=false was not short for anything in older records."""
    name, equals, value = line.partition("=")
    if equals and name.lstrip("+") == "check" and not value.lstrip().startswith("{"):
        return f"{SHORT['check']}={value}"
    return line


def group_options(group: str) -> list[str]:
    """The names of a configuration group (fabric, track, exp). Inside hydra_over."""
    loader = GlobalHydra.instance().config_loader()
    return sorted(loader.get_group_options(group, ObjectType.CONFIG))


def config_folders() -> list[Path]:
    """The folders of configurations: conf/, and that of --config-dir. Inside hydra_over."""
    found = (element.path for element in GlobalHydra.instance().config_loader().get_search_path().get_path())
    return [Path(path.removeprefix("file://")) for path in found if path.startswith(("file://", "/"))]
