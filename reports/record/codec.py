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
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache, partial
from typing import Any, NoReturn

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
    if hasattr(type(value), "__dataclass_fields__"):
        found = {}
        for name, is_later in _written(value.__class__):
            item = getattr(value, name)
            if type(item) in _AS_IT_IS:
                if item is not None or not is_later:
                    found[name] = item
            else:
                found[name] = encoded(item)
        return found
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
    return _reader(kind)(value, where)


@cache
def _reader(kind: Any) -> Callable[[Any, str], Any]:
    """What reads a kind, worked out once: records have some thirty values of these kinds each."""
    if isinstance(kind, types.UnionType):
        (one,) = [option for option in typing.get_args(kind) if option is not type(None)]
        inner = _reader(one)
        return lambda value, where: None if value is None else inner(value, where)
    if dataclasses.is_dataclass(kind):
        return partial(_decoded_fields, kind)
    if typing.get_origin(kind) is tuple:
        return partial(_decoded_items, kind, typing.get_args(kind)[0])
    if typing.get_origin(kind) is dict:
        return lambda value, where: value if isinstance(value, dict) else _is_none(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        members = {str(member): member for member in kind}
        return lambda value, where: (
            members[value] if isinstance(value, str) and value in members else _is_none(kind, value, where)
        )
    if kind is float:
        return _decoded_float
    return lambda value, where: (
        value if kind in (str, int, bool) and type(value) is kind else _is_none(kind, value, where)
    )


def _decoded_items(kind: Any, item_kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, list):
        _is_none(kind, value, where)
    if item_kind is float and set(map(type, value)) == {float}:
        return tuple(value)  # samples, of which there are many
    read = _reader(item_kind)
    return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(value))


def _decoded_float(value: Any, where: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    _is_none(float, value, where)


def _is_none(kind: Any, value: Any, where: str) -> NoReturn:
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
        found[name] = item if type(item) is hint else _reader(hint)(item, f"{where}.{name}")
    return kind(**found)


@cache
def _written(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The names of a dataclass's fields, and whether each came later."""
    return tuple((member.name, bool(member.metadata.get("later"))) for member in dataclasses.fields(kind))


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
