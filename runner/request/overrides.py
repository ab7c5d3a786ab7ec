"""Override lines of the command line: read by Hydra's grammar, and checked for what its grammar allows and we don't."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString

from runner.request.schema import BOOLEANS
from runner.request.sizes import written
from runner.request_error import RequestError

GROUPS = ("exp", "fabric", "track")
"""Keys that choose a file of conf/; fabric and track are sections, too."""


def parsed(lines: Iterable[str]) -> list[Override]:
    """Parse override lines. RequestError for one that can't be meant; HydraException for one that can't be read."""
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    overrides = list(parser.parse_overrides(list(lines)))
    for override in overrides:
        if override.is_delete() or override.package is not None:
            continue
        if override.key_or_group in GROUPS:
            for value in _values(override):
                _check_choice(override.key_or_group, value)
        elif override.key_or_group == "sizes" and None in _values(override):
            raise RequestError(
                "sizes=null leaves no sizes (sizes), give sizes=[1K,4K] or a range: sizes.min=1K sizes.max=1M"
            )
        elif override.key_or_group == "hydra" and not isinstance(override.value(), dict):
            raise RequestError(f"hydra is a section ({override.input_line}), give one of its keys, such as hydra.mode")
        elif override.key_or_group:
            for value in _values(override):
                check_booleans(SHORT.get(override.key_or_group, override.key_or_group), value)
        else:
            raise RequestError(f"'{override.input_line}' has no key (command line), write overrides as key=value")
    return overrides


def check_booleans(key: str, value: object, where: str = "") -> None:
    """RequestError for a number other than 0 and 1 as the value of a key that is true or false, which OmegaConf would
    take for true. value may be a section; where names a file, for the message."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_booleans(f"{key.removesuffix('.results')}.{name}" if key else str(name), inner, where)
    elif key in BOOLEANS and isinstance(value, (int, float)) and value not in (0, 1):
        raise RequestError(f"{key} is {value} ({key}{where}), give true or false")


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
    """RequestError for a value that can't be the name of a file in a group; whether there is one, Hydra says.

    A dictionary sets keys of the section that has the group's name; there is none for experiments.
    """
    if isinstance(value, dict) and group != "exp":
        return
    if value in (None, "", "???", []):
        raise RequestError(f"no {group} given ({group}), known: {', '.join(group_options(group))}")
    if isinstance(value, list):
        again = f"sweep over several: -m {'+' if group == 'exp' else ''}{group}=a,b"
        raise RequestError(f"'{value}' is a list ({group}), give one name, or {again}")
    if not isinstance(value, str):
        raise RequestError(f"{written(value)} is not a name ({group}), known: {', '.join(group_options(group))}")
    if value.startswith("/") or ".." in Path(value).parts or value.endswith(".yaml"):
        raise RequestError(
            f"'{value}' is a path ({group}), give the name of a file in {group}/ without .yaml; --config-dir adds a "
            "folder that has one"
        )


SHORT = {"sizes": "sizes.list", "check": "check.results"}
"""Sections whose name, with a value that is no dictionary, is short for one of their keys."""


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
