"""Numbers of bytes: how they are written, and the sizes that a request's section of that name asks for."""

from __future__ import annotations

import json
import re
from typing import Any

from runner.request_error import RequestError

AUTO = "auto"

USUAL = {"min": "1K", "max": "64K"}
"""What sizes.min and sizes.max stand for when they are "auto"."""

_BYTES = re.compile(r"(\d{1,18})([KMG]?)(?:I?B)?", re.IGNORECASE)
_OTHER_UNIT = re.compile(r"\d+([A-Za-z]+)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(value: object, key: str, least: int = 1) -> int:
    """A number of bytes from 4096, "4096", "4K", "1M", "2G" (binary, as in nccl-tests). RequestError for anything else
    and for less than `least`, 0 or 1."""
    hint = f"give a {'positive number of bytes' if least else 'number of bytes, 0 or more,'} such as 4096, 4K, 1M"
    if isinstance(value, int) and not isinstance(value, bool):
        if value < least:
            raise RequestError(f"{value} bytes ({key}), {hint}")
        return value
    match = _BYTES.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None and isinstance(value, str) and (unit := _OTHER_UNIT.fullmatch(value.strip())):
        raise RequestError(f"'{value}' has the unknown unit '{unit[1]}' ({key}), give K, M or G: powers of 1024")
    if match is None or int(match[1]) < least:
        raise RequestError(f"{written(value)} is not a size ({key}), {hint}")
    return int(match[1]) * _UNITS[match[2].upper()]


def written(value: object) -> str:
    """How a value looks in a configuration: null and true as such, all else in quotes."""
    return json.dumps(value) if value is None or isinstance(value, bool) else f"'{value}'"


def format_bytes(size_bytes: int) -> str:
    """How sizes are shown and may be given: 4096 is "4K", 4098 stays "4098"."""
    for unit in ("G", "M", "K"):
        if size_bytes % _UNITS[unit] == 0 and size_bytes:
            return f"{size_bytes // _UNITS[unit]}{unit}"
    return str(size_bytes)


def are_given(values: dict[str, Any]) -> bool:
    """Whether the section says any size; else an op that has no use for the usual ones takes what it can."""
    return values["list"] is not None or values["min"] != AUTO or values["max"] != AUTO


def sizes_of(values: dict[str, Any]) -> tuple[int, ...]:
    """The sizes in bytes that the section asks for, in order; a list may hold 0. RequestError for what makes none."""
    listed = values["list"]
    if listed is not None:
        items = listed if isinstance(listed, list) else [listed]
        if not items:
            raise RequestError("no sizes in the list (sizes.list), give at least one: sizes=[1K,4K]")
        sizes = tuple(parse_bytes(item, f"sizes.list[{index}]", 0) for index, item in enumerate(items))
        twice = sorted({size for size in sizes if sizes.count(size) > 1})
        if twice:
            raise RequestError(f"{format_bytes(twice[0])} is listed twice (sizes.list), give each size once")
        return sizes
    smallest, largest = (
        parse_bytes(USUAL[name] if values[name] == AUTO else values[name], f"sizes.{name}") for name in ("min", "max")
    )
    factor = values["factor"]
    if smallest > largest:
        raise RequestError(
            f"the smallest size, {format_bytes(smallest)}, is above the largest, {format_bytes(largest)} "
            "(sizes.min, sizes.max), give min no larger than max"
        )
    if factor < 2:
        raise RequestError(f"sizes would never grow with factor {factor} (sizes.factor), give 2 or more")
    found = [smallest]
    while found[-1] * factor <= largest:
        found.append(found[-1] * factor)
    return tuple(found)
