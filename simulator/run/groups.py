"""Groups of lanes that are at the same place of a program: split, and merged again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.observe.lanes import Group, Ids, ids_of


def split(group: Group, masks: list[npt.NDArray[Any]]) -> tuple[Group | None, Group | None]:
    """Return the lanes where the mask holds, and the others; None in place of no lanes."""
    mask = masks[0] if len(masks) == 1 else np.concatenate(masks)
    hits = int(np.count_nonzero(mask))
    if hits == len(mask):
        return group, None
    if hits == 0:
        return None, group
    ids = ids_of(group)
    return compact(ids[mask]), compact(ids[~mask])


def compact(ids: Ids) -> Group:
    """A range, where the lanes are neighbours."""
    first, last = int(ids[0]), int(ids[-1])
    return range(first, last + 1) if last - first + 1 == len(ids) else ids


def merge(groups: list[Group]) -> Group:
    """One group of all lanes, ascending."""
    if len(groups) == 1:
        return groups[0]
    return compact(np.sort(np.concatenate([ids_of(one) for one in groups])))
