"""What each kind of step on a critical path costs, in microseconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of each kind of step. A field's name is the kind (KINDS), as it is counted on a path.

    own_load: a load of the own rank's memory, from issue to result; remote_load: of another rank's; switch_load:
    multimem.ld_reduce. own_atomic, remote_atomic: an atom, as the loads. look: a strong load that did not wait. hop:
    from a strong store of one rank until a poll of another rank sees it; own_hop: until a poll of the same rank does;
    switch_hop: of a store through the switch. store, switch_store: what the warp itself spends on a strong store.
    fence: a fence or the release of an access, of system or GPU scope; fence_after_stores: one with stores to other
    ranks outstanding; block_fence: of block or cluster scope. barrier: of a block (bar.sync); cluster_barrier;
    mbarrier: a wait for an mbarrier. bulk_own_load, bulk_remote_load, bulk_store, bulk_switch_store: a bulk copy from
    issue to its last byte; bulk_read: a bulk copy until its source in shared memory is read. lane_copy: a cp.async.
    """

    own_load: float = 0.3
    remote_load: float = 0.87
    switch_load: float = 0.87
    own_atomic: float = 0.3
    remote_atomic: float = 0.87
    look: float = 0.3
    hop: float = 0.69
    own_hop: float = 0.3
    switch_hop: float = 0.69
    store: float = 0.0
    switch_store: float = 0.0
    fence: float = 0.58
    fence_after_stores: float = 0.58
    block_fence: float = 0.0
    barrier: float = 0.0
    cluster_barrier: float = 0.0
    mbarrier: float = 0.0
    bulk_own_load: float = 0.3
    bulk_remote_load: float = 0.87
    bulk_store: float = 0.87
    bulk_switch_store: float = 0.87
    bulk_read: float = 0.3
    lane_copy: float = 0.3

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not 0 <= value < float("inf"):
                raise ValueError(f"the cost {one.name} is {value}; it must be a number of microseconds, 0 or more")

    def document(self) -> dict[str, float]:
        """Return the costs by kind as plain values."""
        return asdict(self)

    @staticmethod
    def of(document: dict[str, Any]) -> Costs:
        """Return the costs that a document holds. Raises ValueError for an unknown kind."""
        if unknown := sorted(set(document) - set(KINDS)):
            raise ValueError(f"unknown kinds of cost: {', '.join(unknown)}; the kinds are {', '.join(KINDS)}")
        return Costs(**{name: float(value) for name, value in document.items()})


KINDS = tuple(one.name for one in fields(Costs))
"""The kinds of steps, in the order of Costs."""
H200_TRIAL = Costs()
"""The constants of the trial on records of 2 and 4 H200 (November 2026): own load 0.3, remote load 0.87, store to poll
0.69, release 0.58. The trial has no others: loads and copies through the switch and by bulk copies cost what those
of the same distance cost, barriers nothing, until floors say better."""
