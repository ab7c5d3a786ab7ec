"""From what is known of a type of GPU (runner/gpu) to what the model takes of it.

Floors that were not measured are assumed, and named: a step's cost is that of the clock's own trial, a link's rates
are shares of what its datasheet says, those that SMs reached on H200. Without any floors a type is uncalibrated:
launches and waits are then another GPU's, so only what the links decide is worth telling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from runner.gpu.gpu_type import Floors, GpuType
from runner.gpu.names import gpu_names
from runner.gpu.reading import gpu_type
from simulator.clock.costs import H200_TRIAL
from symlab.speed.calibrate.probes import ON_GPUS
from symlab.speed.predict.model import MEMORY_TURN_BYTES, TURN_BYTES, Rates

PUSH_SHARE, PULL_SHARE, PULL_BOTH_SHARE = 1 / 1.248, 1 / 1.223, 1 / (1.223 + 0.135)
"""Of a link's datasheet rate: what a packet's header and flow control leave of it, storing, loading, and loading both
ways. From the trial on published records of H200 (November 2026): 361, 368 and 331 of 450 GB/s. That day a copy by SMs
alone reached 364 to 367 pushing, and 333 pulling both ways."""

BULK_PUSH_SHARE = 344.7 / 450
"""The same, storing by bulk copies: of H200's floors (symlab calibrate, 2026-11-23)."""

MEMORY_SHARE = 3962 / 4800
"""What SMs reach of a memory's datasheet rate, reading and writing: of H200's floors (symlab calibrate, 2026-11-23)."""

PROBE_BEGIN_US = 0.9
"""What a probe's launch takes beyond an empty node before it moves anything: the score's begin."""

WAITS = ("relaxed_us", "load_own_l2_us", "load_remote_hot_us", "release_acquire_us")
"""Floors that the costs of steps are taken from."""

OWN_LOADS = ("own_load", "look", "own_hop", "own_atomic", "bulk_own_load", "bulk_read", "lane_copy")
REMOTE_LOADS = (
    "remote_load", "switch_load", "remote_atomic", "bulk_remote_load", "bulk_store", "bulk_switch_store",
)  # fmt: skip
"""Kinds of steps that cost what a load from the own L2 cache costs, and what one from another GPU's costs."""

USUAL = "h200"
"""The type whose launches and waits stand in for those of an uncalibrated one."""


@dataclass(frozen=True, slots=True)
class Known:
    """Rates of a type, and what of them is not its own: assumed names floors that were not measured on it;
    is_calibrated says whether there are floors at all."""

    name: str
    rates: Rates
    assumed: tuple[str, ...]
    is_calibrated: bool


def rates_of(type_: GpuType, stand_in: Floors | None = None) -> Known:
    """Return what the model takes of a type. stand_in: floors for a type that has none; None: those of USUAL.

    Of floors by number of blocks the empty nodes of one block count; of copies the fastest and those of one block; of
    local sums those of the most blocks, because with fewer the data stay in the L2 cache, and those of one block.
    """
    floors = type_.floors
    own = floors or stand_in or gpu_type(USUAL).floors
    assert own is not None, "the usual type has floors"
    costs, assumed = _costs(own)
    if floors is None:
        assumed = ["empty_node_us", *WAITS]
    elif not own.empty_node_us:
        assumed.insert(0, "empty_node_us")
    link_gbps = type_.links.one_way_gbps
    links: dict[str, float] = {}
    for name, share in (
        ("push_gbps", PUSH_SHARE),
        ("bulk_push_gbps", BULK_PUSH_SHARE),
        ("pull_gbps", PULL_SHARE),
        ("pull_both_gbps", PULL_BOTH_SHARE),
    ):
        measured: Mapping[int, float] = getattr(floors, name) if floors is not None else {}
        links[name] = max(measured.values()) if measured else link_gbps * share
        if not measured:
            assumed.append(name)
    sums = floors.reduce_gbps if floors is not None else {}
    memory_gbps = sums[max(sums)] if sums else type_.memory.gbps * MEMORY_SHARE
    if not sums:
        assumed.append("reduce_gbps")
    links |= _of_a_block(own)
    launch_us = own.empty_node_us[min(own.empty_node_us)] if own.empty_node_us else 0.0
    l2_bytes = type_.memory.l2_bytes
    nodes = own.empty_node_dependent_us
    links["dependent_launch_us"] = nodes[min(nodes)] if nodes else launch_us
    rates = Rates(launch_us, costs, memory_gbps=memory_gbps, l2_bytes=l2_bytes, cold_us=_cold(own), **links)
    return Known(type_.name, rates, tuple(assumed), floors is not None)


def known_rates() -> dict[str, Rates]:
    """Return the rates of all types of GPU in conf/gpu, by name."""
    return {name: rates_of(gpu_type(name)).rates for name in gpu_names()}


def _of_a_block(floors: Floors) -> dict[str, float]:
    """Return what one block moves alone, with its waits and without, by the names of Rates; of floors that lack it that
    of USUAL: it is the multiprocessor's, which differs less from type to type than links do."""
    usual = gpu_type(USUAL).floors
    assert usual is not None, "the usual type has floors"
    found = {}
    for way, floor, turn_bytes, turns, wait in (
        ("push", "push_gbps", TURN_BYTES, ON_GPUS.copy_turns, "load_own_l2_us"),
        ("bulk_push", "bulk_push_gbps", TURN_BYTES, ON_GPUS.copy_turns, "load_own_l2_us"),
        ("pull", "pull_gbps", TURN_BYTES, ON_GPUS.copy_turns, "load_remote_hot_us"),
        ("memory", "reduce_gbps", MEMORY_TURN_BYTES, ON_GPUS.reduction_turns, "load_own_l2_us"),
    ):
        own = floors if getattr(floors, floor).get(1) and getattr(floors, wait) is not None else usual
        gbps, wait_us = getattr(own, floor)[1], getattr(own, wait)
        moved = turn_bytes * turns / 1e3
        found[f"block_{way}_gbps"] = gbps
        rest_us = moved / gbps - PROBE_BEGIN_US - turns * wait_us
        found[f"issue_{way}_gbps"] = moved / rest_us if rest_us > 0 else math.inf
    return found


def _cold(floors: Floors) -> dict[str, float]:
    """Return what steps cost more if their data come from memory, by kind; nothing of what was not measured."""
    found: dict[str, float] = {}
    for kinds, hot_us, cold_us in (
        (("own_load", "bulk_own_load", "bulk_read", "lane_copy"), floors.load_own_l2_us, floors.load_own_memory_us),
        (("remote_load",), floors.load_remote_hot_us, floors.load_remote_cold_us),
    ):
        if hot_us is not None and cold_us is not None:
            found |= dict.fromkeys(kinds, max(cold_us - hot_us, 0.0))
    return found


def _costs(floors: Floors) -> tuple[dict[str, float], list[str]]:
    """Return the cost of each kind of step in microseconds, and the floors that had to be assumed for it.

    Bulk copies have no floor of their waits, and take those of loads of the same distance.
    """
    costs, assumed = H200_TRIAL.document(), []
    release_us = floors.release_acquire_us
    for kinds, name, value in (
        (("hop", "switch_hop"), "relaxed_us", floors.relaxed_us),
        (OWN_LOADS, "load_own_l2_us", floors.load_own_l2_us),
        (REMOTE_LOADS, "load_remote_hot_us", floors.load_remote_hot_us),
    ):
        if value is None:
            assumed.append(name)
        else:
            costs |= dict.fromkeys(kinds, value)
    if release_us and floors.relaxed_us is not None:
        costs["fence"] = release_us[min(release_us)] - floors.relaxed_us
        stored = [count for count in release_us if count]
        after = release_us[min(stored)] - floors.relaxed_us if stored else costs["fence"]
        costs["fence_after_stores"] = after
    else:
        assumed.append("release_acquire_us")
    return costs, assumed
