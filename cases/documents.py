"""Frozen dataclasses to JSON and back, strictly: what is read is what was written, or a ValueError that says where it
isn't.

JSON has no NaN and no infinity: a dataclass field annotated float writes them as "NaN", "Infinity" and "-Infinity".
Dicts are free-form and hold plain JSON values with finite numbers only (see plain). Integers fit into 64 bits, and
values are nested at most MAX_DEPTH deep, so that whatever computes with them or walks through them can.
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
from typing import Any, NoReturn, TypeVar, cast

MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 64) - 1
"""What an integer of 64 bits can be, with a sign or without."""

MAX_DEPTH = 100
"""How deep lists and objects may be nested in a free-form part of a record."""

_AS_IT_IS = frozenset({str, int, bool, type(None)})
"""Types whose values JSON says as they are."""

_SHORT = frozenset({str, bool, type(None)})
"""Those of them that need no look at the value."""


class Plain(dict[str, Any]):
    """A JSON object that plain gave, in many records at once: it is never changed, and not copied again."""


_OBJECTS: frozenset[type] = frozenset((dict, Plain))
"""Types of JSON objects that are written as they are."""


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a deep copy made of plain JSON values. depth: how deep the value itself is nested.

    Raises ValueError, naming where, for what JSON can't express, for an integer of more than 64 bits, and for values
    nested more than MAX_DEPTH deep.
    """
    kind = type(value)  # the plain kinds first, by their own types: records hold thousands of such values
    if kind in _SHORT or (kind is float and math.isfinite(value)):
        return value
    if kind is int:
        return _integer(value, where)
    if kind is Plain:
        return value
    if depth > MAX_DEPTH:
        raise ValueError(f"{where[:80]}..: nested more than {MAX_DEPTH} deep")
    below = depth + 1
    if kind is list:
        return [one if type(one) in _SHORT else plain(one, f"{where}[{at}]", below) for at, one in enumerate(value)]
    if kind is dict and set(map(type, value)) <= {str}:
        return {key: one if type(one) in _SHORT else plain(one, f"{where}.{key}", below) for key, one in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, numbers.Integral):
        return _integer(int(value), where)
    if isinstance(value, numbers.Real):
        if not math.isfinite(value):
            raise ValueError(f"{where}: {value} has no place in JSON; write it as text")
        return float(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ValueError(f"{where}: keys must be text")
        return {str(key): plain(item, f"{where}.{key}", below) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value) if isinstance(value, (set, frozenset)) else value
        return [plain(item, f"{where}[{index}]", below) for index, item in enumerate(items)]
    raise ValueError(f"{where}: a {type(value).__name__} can't be stored as JSON")


def _integer(value: int, where: str) -> int:
    if MIN_INTEGER <= value <= MAX_INTEGER:
        return value
    raise ValueError(f"{where}: an integer of {value.bit_length()} bits; records hold up to 64")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object that has these keys and values. Raises ValueError for a key that is given twice."""
    if len(found := dict(pairs)) == len(pairs):
        return found
    keys = [key for key, _ in pairs]
    raise ValueError(f"the key {json.dumps(next(key for key in keys if keys.count(key) > 1))[:80]} is given twice")


MOST_NESTED = 250_000
"""Maximum number of lists and objects of a text. A command.json of 10,000 jobs has 40,000, a record some hundred."""

LONGEST_NUMBER = 1000
"""Maximum number of digits of a whole number, which no 64-bit value has: Python takes quadratic time for more."""


def _whole_number(text: str) -> int:
    if len(text) > LONGEST_NUMBER:
        raise ValueError(f"a number of more than {LONGEST_NUMBER} digits")
    return int(text)


_JSON = json.JSONDecoder(parse_int=_whole_number, parse_constant=_no_constant, object_pairs_hook=_each_once)


def parsed(text: str) -> Any:
    """Return the value of a JSON text, as strict as the standard. Raises ValueError in one line.

    Refused are NaN and infinities, a key that an object gives twice, half a character (a lone surrogate, with which no
    file can be written), and values nested more deeply than Python can follow.
    """
    if text.count("{") + text.count("[") > MOST_NESTED:
        raise ValueError(f"more than {MOST_NESTED:,} lists and objects: each takes hundreds of bytes of memory")
    if text.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark: write it as UTF-8 without one")
    try:
        value = _JSON.decode(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise ValueError(f"{half} is half of a character: a lone surrogate") from None
    return value


_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


LATER = {"later": True}
"""Metadata of a field that came later: its default is not written, so that a record without it stays as it was to the
byte."""

_ALWAYS = object()
"""In place of a default that is written, too."""


def encoded(value: Any, instead: Mapping[str, Any] = types.MappingProxyType({})) -> Any:
    """A dataclass, or what a field of one holds, as what json.dumps(allow_nan=False) can write. instead: what is
    written for some of the dataclass's own fields."""
    if type(value) in _OBJECTS:
        return value
    if hasattr(type(value), "__dataclass_fields__"):
        found = {}
        for name, unwritten in _written(value.__class__):
            if name in instead:
                found[name] = instead[name]
                continue
            item = getattr(value, name)
            if unwritten is _ALWAYS or item != unwritten:
                found[name] = item if type(item) in _AS_IT_IS else encoded(item)
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


Noun = TypeVar("Noun")


def decoded(kind: type[Noun], value: Any, where: str) -> Noun:
    """value, as json.loads gave it, read as kind: an annotation made of dataclasses, tuple[x, ...], dict, StrEnum,
    scalars, or one of these or None."""
    found: Noun = _reader(cast(Any, kind))(value, where)
    return found


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
        return lambda value, where: value if isinstance(value, dict) else _refuse(kind, value, where)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        members = {str(member): member for member in kind}
        return lambda value, where: (
            members[value] if isinstance(value, str) and value in members else _refuse(kind, value, where)
        )
    if kind is float:
        return _decoded_float
    if kind is int:
        return lambda value, where: _integer(value, where) if type(value) is int else _refuse(int, value, where)
    return lambda value, where: value if kind in (str, bool) and type(value) is kind else _refuse(kind, value, where)


def _decoded_items(kind: Any, item_kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, list):
        _refuse(kind, value, where)
    if item_kind is float and set(map(type, value)) == {float}:
        return tuple(value)  # samples, of which there are many
    read = _reader(item_kind)
    return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(value))


def _decoded_float(value: Any, where: str) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) is int:
        return float(_integer(value, where))
    if type(value) is float and math.isfinite(value):  # JSON's 1e999 is read as infinity, and would be written as text
        return value
    _refuse(float, value, where)


_WORDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false", tuple: "a list"}


def _refuse(kind: Any, value: Any, where: str) -> NoReturn:
    kind = typing.get_origin(kind) or kind
    is_of_words = isinstance(kind, type) and issubclass(kind, StrEnum)
    wanted = f"one of {', '.join(kind)}" if is_of_words else _WORDS.get(kind, "an object")
    raise ValueError(f"{where} is {_brief(value, json.dumps)}, give {wanted}")


def _decoded_fields(kind: Any, value: Any, where: str) -> Any:
    if isinstance(value, kind):  # read before: JSON has no such values
        return value
    if not isinstance(value, dict):
        _refuse(kind, value, where)
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
        is_ready = type(item) is hint and hint in _SHORT
        found[name] = item if is_ready else _reader(hint)(item, f"{where}.{name}")
    return kind(**found)


@cache
def _written(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The names of a dataclass's fields, and the value of each that is not written."""
    return tuple(
        (member.name, member.default if member.metadata.get("later") else _ALWAYS)
        for member in dataclasses.fields(kind)
    )


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


def make_plain(part: Any, place: str) -> None:
    """Make plain values of all free-form fields of a frozen dataclass, as its __post_init__. place: see plain."""
    for name in _free_form(part.__class__):
        value = getattr(part, name)
        if value is not None:
            made = plain(value, f"{place}.{name}")
            object.__setattr__(part, name, tuple(made) if isinstance(value, tuple) else made)


@cache
def _free_form(kind: Any) -> tuple[str, ...]:
    """The names of a dataclass's fields that hold JSON objects."""
    return tuple(name for name, hint in _fields(kind)[0].items() if "dict[str, typing.Any]" in str(hint))


def _brief(value: Any, written: Callable[[Any], str] = repr) -> str:
    """Return a value as text, but no more than 80 characters of it."""
    try:
        text = written(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of more digits than Python writes
        return f"a {type(value).__name__} that is too large to be shown"
    return text if len(text) <= 80 else f"{text[:78]}.."
