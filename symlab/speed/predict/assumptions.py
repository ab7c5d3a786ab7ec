"""What was not measured, and how far it may be off: rates of a type of GPU with its assumed constants lower and higher.

A constant that was assumed may lie between a part and a multiple of what is assumed. A time is shortest with all of
them at their quick end, longest with all at their slow end. Waits of multimem are assumed on every type, because
symlab calibrate has no probe of them.
"""

from __future__ import annotations

from dataclasses import replace

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

LAUNCHES = ("launch_us", "dependent_launch_us")

LINKS = {
    "push_gbps": ("push_gbps", "block_push_gbps", "issue_push_gbps"),
    "bulk_push_gbps": ("bulk_push_gbps", "block_bulk_push_gbps", "issue_bulk_push_gbps"),
    "pull_gbps": ("pull_gbps", "pull_both_gbps", "block_pull_gbps", "issue_pull_gbps"),
    "reduce_gbps": ("memory_gbps", "block_memory_gbps", "issue_memory_gbps"),
}
"""Rates of links and of memory by the floor that says whether they were measured."""


def corners(known: Known) -> tuple[Rates, ...]:
    """Return the rates of a type, as they are, then with all that is assumed as quick, and as slow, as it may be.
    With all floors measured that is multimem alone."""
    waits = {kind for floor, kinds in WAITS.items() if floor in known.assumed for kind in kinds} | {*SWITCH}
    links = {name for floor, names in LINKS.items() if floor in known.assumed for name in names}
    launch = "empty_node_us" in known.assumed

    def at(wait: float, link: float) -> Rates:
        own = known.rates
        costs = {kind: cost * wait if kind in waits else cost for kind, cost in own.costs_us.items()}
        rates = {name: getattr(own, name) * link for name in links}
        launches = {name: getattr(own, name) * (wait if launch else 1.0) for name in LAUNCHES}
        return replace(own, costs_us=costs, **launches, **rates)

    return known.rates, at(1 / WAIT_FACTOR, LINK_FACTOR), at(WAIT_FACTOR, 1 / LINK_FACTOR)


SAID = (
    f"intervals: launches and waits that are assumed may be {WAIT_FACTOR:g} times as long or as short, links and "
    f"memory {LINK_FACTOR:g} times as fast or as slow"
)
"""How far what is assumed may be off, in words."""
