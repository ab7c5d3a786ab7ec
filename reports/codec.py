"""Frozen dataclasses to JSON and back, strictly: what is read is what was written, or a ValueError that says where it
isn't.

JSON has no NaN and no infinity: a dataclass field annotated float writes them as "NaN", "Infinity" and "-Infinity".
Dicts are free-form and hold plain JSON values with finite numbers only (see plain).
"""

from __future__ import annotations

import dataclasses
import json
import math
import numbers
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

_AS_IT_IS = frozenset({str, int, bool, type(None)})
"""Types whose values JSON says as they are."""


def plain(value: Any, where: str) -> Any:
    """A deep copy made of plain JSON values. ValueError, naming where, for what JSON can't say and would not give
    back."""
    kind = type(value)  # the plain kinds first, by their own types: records hold thousands of such values
    if kind in _AS_IT_IS or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return [one if type(one) in _AS_IT_IS else plain(one, f"{where}[{at}]") for at, one in enumerate(value)]
    if kind is dict and set(map(type, value)) <= {str}:
        return {key: one if type(one) in _AS_IT_IS else plain(one, f"{where}.{key}") for key, one in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        if not math.isfinite(value):
            raise ValueError(f"{where}: {value} has no place in JSON; write it as text")
        return float(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"{where}: keys must be text")
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [plain(item, f"{where}[{index}]") for index, item in enumerate(items)]
    raise ValueError(f"{where}: a {type(value).__name__} can't be stored as JSON")


_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


LATER = {"later": True}
"""Metadata of a field that came later: None is not written, so that a record without it stays as it was to the byte."""


def encoded(value: Any) -> Any:
    """A dataclass, or what a field of one holds, as what json.dumps(allow_nan=False) can write."""
    if dataclasses.is_dataclass(value):
        items = [(member, getattr(value, member.name)) for member in dataclasses.fields(value)]
        return {one.name: encoded(item) for one, item in items if item is not None or not one.metadata.get("later")}
    if isinstance(value, dict):
        return value
    if isinstance(value, (tuple, list)):
        if set(map(type, value)) == {float} and all(map(math.isfinite, value)):
            return list(value)  # samples, of which there are many
        return [encoded(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def decoded(kind: Any, value: Any, where: str) -> Any:
    """value, as json.loads gave it, read as kind: an annotation made of dataclasses, tuple[x, ...], dict, StrEnum,
    scalars, or one of these or None."""
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        (kind,) = [option for option in typing.get_args(kind) if option is not type(None)]
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _decoded_fields(kind, value, where)
    if origin is tuple and isinstance(value, list):
        item_kind = typing.get_args(kind)[0]
        if item_kind is float and set(map(type, value)) == {float}:
            return tuple(value)  # samples, of which there are many
        return tuple(decoded(item_kind, item, f"{where}[{index}]") for index, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return value
    if isinstance(kind, type) and issubclass(kind, StrEnum) and value in kind.__members__.values():
        return kind(value)
    if kind is float and isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind in (str, int, bool) and type(value) is kind:
        return value
    raise ValueError(f"{where}: {json.dumps(value)[:80]} is no {getattr(kind, '__name__', kind)}")


def _decoded_fields(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: {json.dumps(value)[:80]} is no {kind.__name__}")
    hints, needed = _fields(kind)
    unknown = sorted(value.keys() - hints.keys())
    if unknown:
        raise ValueError(f"{where}: unknown field {', '.join(unknown)}")
    missing = [name for name in needed if name not in value]
    if missing:
        raise ValueError(f"{where}: lacks {', '.join(missing)}")
    found = {}
    for name, item in value.items():
        hint = hints[name]
        found[name] = item if type(item) is hint else decoded(hint, item, f"{where}.{name}")
    return kind(**found)


@cache
def _fields(kind: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The annotations of a dataclass's fields by name, and the names of those that have no default."""
    hints = typing.get_type_hints(kind)
    needed = [
        member.name
        for member in dataclasses.fields(kind)
        if member.default is dataclasses.MISSING and member.default_factory is dataclasses.MISSING
    ]
    return {member.name: hints[member.name] for member in dataclasses.fields(kind)}, tuple(needed)
