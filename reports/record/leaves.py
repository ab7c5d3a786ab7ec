"""The leaves of nested values, such as a record's configuration, environment and counters, with the way to each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
"""Keys of mappings and positions in lists, from the outside in."""


def leaves(value: Any, into_lists: bool = False, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the value of each leaf, in order. An empty mapping within is a leaf.

    A list is a leaf. With into_lists, one that holds mappings or lists is not: its members have positions as keys.
    """
    items: Iterable[tuple[str | int, Any]]
    if isinstance(value, Mapping) and (value or not path):
        items = value.items()
    elif into_lists and isinstance(value, list) and any(isinstance(one, (Mapping, list)) for one in value):
        items = enumerate(value)
    else:
        yield path, value
        return
    for key, item in items:
        yield from leaves(item, into_lists, (*path, key))


def by_dotted_path(value: Mapping[str, Any], into_lists: bool = False) -> dict[str, Any]:
    """Return the leaves by their paths as text: {"timing.mode": "graph"}."""
    return {".".join(map(str, path)): leaf for path, leaf in leaves(value, into_lists)}
