"""The critical path as text: a line a step, who waits for what."""

from __future__ import annotations

from simulator.clock.path import WAITS
from simulator.clock.profile import LaunchProfile, Path, Segment

_DOES = {
    "own_load": "loads from its own memory",
    "remote_load": "loads from another rank",
    "switch_load": "reduces through the switch",
    "own_atomic": "atomic operation in its own memory",
    "remote_atomic": "atomic operation at another rank",
    "look": "looks at a flag that is there",
    "store": "stores what others wait for",
    "switch_store": "stores through the switch",
    "fence": "fence",
    "fence_after_stores": "fence after stores to other ranks",
    "block_fence": "fence of its block",
    "mbarrier": "waits at an mbarrier",
    "bulk_own_load": "bulk copy from its own memory",
    "bulk_remote_load": "bulk copy from another rank",
    "bulk_store": "bulk copy to memory",
    "bulk_switch_store": "bulk copy through the switch",
    "bulk_read": "bulk copy reads its source",
    "lane_copy": "copies by lanes from its own memory",
}


def explained(one: LaunchProfile, most: int = 60) -> str:
    """Return a launch's critical path as text, a line a step; of more than `most` steps those at both ends."""
    ranks = f"{len(one.ranks)} rank" + ("s" if len(one.ranks) > 1 else "")
    shape = f"{ranks}, {one.grid} blocks of {one.block} threads"
    head = f"{one.kernel}, launch {one.number}: {one.clock_us:.2f} us along the critical path ({shape})"
    lines = [line_of(each) for each in one.path.segments]
    if len(lines) > most:
        lines = [*lines[: most // 2], f"  .. {len(lines) - most // 2 * 2} more steps ..", *lines[-(most // 2) :]]
    return "\n".join([head, *lines, counts_text(one.path)])


def line_of(one: Segment) -> str:
    """Return a step as a line: from when to when, who, what, for whom it waits, and where that stands."""
    who = f"rank {one.rank}, block {one.block}, warp {one.warp}"
    where = f"PTX line {one.line}" if one.line else ""
    where += f", {one.source}" if one.source else ""
    return f"  {one.from_us:8.2f} to {one.to_us:8.2f} us  {who:28} {does(one)}" + (f"; {where}" if where else "")


def does(one: Segment) -> str:
    """Return what a step does: "waits for rank 3's store (block 0, PTX line 107)"."""
    if one.kind in WAITS and one.awaited is not None:
        rank, block, warp, line = one.awaited
        if "barrier" in one.kind:
            if (rank, block, warp) == (one.rank, one.block, one.warp):
                return "comes last to a barrier"
            return f"waits at a barrier for warp {warp}" + ("" if block == one.block else f" of block {block}")
        store = "store through the switch" if one.kind == "switch_hop" else "store"
        if rank == one.rank:
            return f"waits for block {block}'s {store} (PTX line {line})"
        return f"waits for rank {rank}'s {store} (block {block}, PTX line {line})"
    text = _DOES.get(one.kind, one.kind)
    return text + (f" ({one.outstanding} of them)" if one.kind == "fence_after_stores" else "")


def counts_text(path: Path) -> str:
    """Return the counts of a path's steps by kind in one line."""
    counts = ", ".join(f"{number} {kind}" for kind, number in path.counts.items())
    return f"  steps: {counts or 'none'}"
