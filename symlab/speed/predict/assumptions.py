"""What was not measured, and how far it may be off: rates of a type of GPU with its assumed constants lower and higher.

A constant that was assumed may lie between a part and a multiple of what is assumed. All corners are tried: each group
of constants that is one floor, low or high, whatever the others are. Algorithms are compared within a corner, so that
what they have in common does not blur which one is faster. Waits of multimem are assumed on every type, because
symlab calibrate has no probe of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from symlab.speed.predict.model import Rates
from symlab.speed.predict.rates import OWN_LOADS, REMOTE_LOADS, Known

WAIT_FACTOR = 2.0
"""How far launches and waits may be off, either way. On one type, H200, a load from the own L2 cache took 0.30 us in
the trial and 0.16 us in symlab calibrate, 1.9 times apart; no other floor was further off."""

LINK_FACTOR = 1.2
"""How far rates of links and memory may be off, either way. Copies by SMs reached 0.73 to 0.82 of a link's datasheet
rate on H200, local sums 0.83 of the memory's, and so much is assumed of others: by this factor it is 0.61 to 0.99."""

SWITCH = ("switch_load", "switch_hop", "bulk_switch_store")
"""Kinds of steps through the switch, which are assumed to be those of peers, and may be off on every type."""

WAITS = {
    "empty_node_us": (),
    "load_own_l2_us": OWN_LOADS,
    "load_remote_hot_us": tuple(kind for kind in REMOTE_LOADS if kind not in SWITCH),
    "relaxed_us": ("hop",),
    "release_acquire_us": ("fence", "fence_after_stores"),
}
"""Kinds of steps by the floor that they are taken from; the empty node is the launch itself."""

LINKS = {
    "push_gbps": ("push_gbps", "block_push_gbps", "issue_push_gbps"),
    "bulk_push_gbps": ("bulk_push_gbps", "block_bulk_push_gbps", "issue_bulk_push_gbps"),
    "pull_gbps": ("pull_gbps", "pull_both_gbps", "block_pull_gbps", "issue_pull_gbps"),
    "reduce_gbps": ("memory_gbps", "block_memory_gbps", "issue_memory_gbps"),
}
"""Rates of links and of memory by the floor that says whether they were measured."""


def corners(known: Known) -> tuple[Rates, ...]:
    """Return the rates of a type, as they are first, then with each combination of its assumed constants low and high.
    With all floors measured: two more, of multimem alone."""
    changes = list(_changes(known))
    return known.rates, *(_changed(known.rates, one) for one in itertools.product(*changes))


SAID = (
    f"intervals: launches and waits that are assumed may be {WAIT_FACTOR:g} times as long or as short, links and "
    f"memory {LINK_FACTOR:g} times as fast or as slow, each by itself"
)
"""How far what is assumed may be off, in words."""

_Change = tuple[tuple[str, ...], float]
"""Names of costs or of fields of Rates, and what they are multiplied by."""


def _changes(known: Known) -> Iterator[tuple[_Change, _Change]]:
    for floor, kinds in WAITS.items():
        if floor in known.assumed:
            names = kinds or ("launch_us",)
            yield (names, 1 / WAIT_FACTOR), (names, WAIT_FACTOR)
    yield (SWITCH, 1 / WAIT_FACTOR), (SWITCH, WAIT_FACTOR)
    for floor, names in LINKS.items():
        if floor in known.assumed:
            yield (names, 1 / LINK_FACTOR), (names, LINK_FACTOR)


def _changed(rates: Rates, changes: tuple[_Change, ...]) -> Rates:
    costs = dict(rates.costs_us)
    own = {one.name for one in fields(Rates)}
    found: dict[str, Any] = {}
    for names, factor in changes:
        for name in names:
            if name in own:
                found[name] = getattr(rates, name) * factor
            else:
                costs[name] *= factor
    return replace(rates, costs_us=costs, **found)
