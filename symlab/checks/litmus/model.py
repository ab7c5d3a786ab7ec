"""The memory consistency model of the PTX ISA (chapter 8, version 8.x), as boolean matrices over events.

A relation is an array [.., from, to]; with a leading axis it holds many executions at once. Read this file beside the
chapter: each function names its section. README.md says what is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symlab.checks.litmus.program import Place
from symlab.checks.litmus.unfold import INITIAL, Event, Skeleton

Relation = NDArray[np.bool_]
Numbers = NDArray[np.int64]

AXIOMS = {
    "Coherence": "8.10.1",
    "Fence-SC": "8.10.2",
    "Atomicity": "8.10.3",
    "No-Thin-Air": "8.10.4",
    "SC-per-Location": "8.10.5",
    "Causality": "8.10.6",
}
"""The axioms by name, with their sections."""


MAXIMUM_EVENTS = 64
"""A row of a relation fits into one number of 64 bits, which makes compositions fast."""


def then(first: Relation, second: Relation) -> Relation:
    """Return the composition: x to z if first has x to y and second has y to z for some y."""
    rows = _packed(second)
    shape = np.broadcast_shapes(first.shape[:-1], rows.shape)
    result = np.zeros(shape, dtype=np.uint64)
    for middle in range(first.shape[-1]):
        result |= np.where(first[..., middle], rows[..., middle, None], np.uint64(0))
    return _unpacked(result)


def closed(relation: Relation) -> Relation:
    """Return the transitive closure (Warshall's)."""
    rows = _packed(relation)
    for middle in range(rows.shape[-1]):
        reaches = (rows >> np.uint64(middle) & np.uint64(1)).astype(bool)
        rows |= np.where(reaches, rows[..., middle, None], np.uint64(0))
    return _unpacked(rows)


def _packed(relation: Relation) -> NDArray[np.uint64]:
    """Each row of a relation as a number whose bit i is column i."""
    size = relation.shape[-1]
    padded = np.zeros((*relation.shape[:-1], MAXIMUM_EVENTS), dtype=bool)
    padded[..., :size] = relation
    packed = np.packbits(padded, axis=-1, bitorder="little").view("<u8")[..., 0]
    return np.ascontiguousarray(packed, dtype=np.uint64)


def _unpacked(rows: NDArray[np.uint64]) -> Relation:
    octets = np.ascontiguousarray(rows[..., None], dtype="<u8").view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little")[..., : rows.shape[-1]].astype(bool)


def inverse(relation: Relation) -> Relation:
    """Return the relation with its arrows turned."""
    return np.swapaxes(relation, -1, -2)


def cyclic(relation: Relation) -> NDArray[np.bool_]:
    """Return, for each execution, whether something precedes itself."""
    return np.asarray(np.diagonal(relation, axis1=-2, axis2=-1).any(axis=-1))


def _diagonal(chosen: NDArray[np.bool_]) -> Relation:
    return np.diag(chosen)


@dataclass(frozen=True, slots=True)
class Fixed:
    """All relations and sets of a skeleton that do not depend on what reads return."""

    events: tuple[Event, ...]
    is_read: NDArray[np.bool_]
    is_write: NDArray[np.bool_]
    is_initial: NDArray[np.bool_]
    is_generic: NDArray[np.bool_]
    is_alias_fence: NDArray[np.bool_]
    program_order: Relation
    issued: Relation
    barriers: Relation
    same_location: Relation
    same_address: Relation
    same_proxy: Relation
    same_block: Relation
    morally_strong: Relation
    update: Relation
    dependency: Relation
    release_pattern: Relation
    acquire_pattern: Relation
    sc_fences: Relation
    proxy_fence_of: Relation

    @property
    def size(self) -> int:
        """The number of events."""
        return len(self.events)


def fixed(skeleton: Skeleton) -> Fixed:
    """Return the relations of a skeleton that hold in all its executions. ValueError if it has too many events."""
    events = skeleton.events
    if len(events) > MAXIMUM_EVENTS:
        raise ValueError(f"{len(events)} operations, initial writes included, are more than {MAXIMUM_EVENTS}")
    thread = np.array([one.thread for one in events])
    step = np.array([one.step for one in events])
    kind = np.array([one.kind for one in events])
    is_async = np.array([one.is_async for one in events])
    is_memory = (kind == "R") | (kind == "W")
    is_proxy_fence = (kind == "F") & np.array([not one.order for one in events])
    update = _update(events)
    same_thread = (thread[:, None] == thread) & (thread[:, None] != INITIAL)
    program_order = same_thread & (step[:, None] < step) & ~is_async[:, None] & ~is_async
    program_order |= update  # an atomic operation's read comes before its write
    same_location, same_address, is_complete = _overlaps(events)
    proxies = np.array(
        ["generic" if proxy_fence else one.proxy for one, proxy_fence in zip(events, is_proxy_fence, strict=True)]
    )
    same_proxy = proxies[:, None] == proxies
    is_both_memory = is_memory[:, None] & is_memory
    in_order = program_order | inverse(program_order)
    mutual = _scoped(skeleton) & inverse(_scoped(skeleton))
    morally_strong = (in_order | mutual) & same_proxy & (is_complete | ~is_both_memory)
    strong_write = (kind == "W") & _is_strong(events)
    strong_read = (kind == "R") & _is_strong(events) & np.array([not one.is_red for one in events])
    return Fixed(
        events=events,
        is_read=kind == "R",
        is_write=kind == "W",
        is_initial=thread == INITIAL,
        is_generic=is_memory & (proxies == "generic"),
        is_alias_fence=is_proxy_fence & np.array([one.proxy == "alias" for one in events]),
        program_order=program_order,
        issued=_issued(events),
        barriers=_pairs(len(events), skeleton.met),
        same_location=same_location,
        same_address=same_address,
        same_proxy=same_proxy,
        same_block=_same_block(skeleton),
        morally_strong=morally_strong & ~np.eye(len(events), dtype=bool),
        update=update,
        dependency=_dependencies(skeleton),
        release_pattern=_release_patterns(events, program_order, same_address, strong_write),
        acquire_pattern=_acquire_patterns(events, program_order, same_address, strong_read),
        sc_fences=_sc_fences(events, morally_strong),
        proxy_fence_of=_proxy_fence_of(events, is_memory, is_proxy_fence) & _same_block(skeleton),
    )


def _pairs(size: int, pairs: Any) -> Relation:
    relation = np.zeros((size, size), dtype=bool)
    for first, second in pairs:
        relation[first, second] = True
    return relation


def _update(events: tuple[Event, ...]) -> Relation:
    """From the read of an atomic operation to its write."""
    return _pairs(len(events), [(one.partner, number) for number, one in enumerate(events) if one.partner >= 0])


def _issued(events: tuple[Event, ...]) -> Relation:
    """Order of asynchronous operations: after what the thread did before, and before a wait for them (8.9.1.1)."""
    return _pairs(len(events), [(before, number) for number, one in enumerate(events) for before in one.after])


def _dependencies(skeleton: Skeleton) -> Relation:
    """From a read to what its value decides: a value that is stored, or whether an instruction is carried out."""
    return _pairs(
        len(skeleton.events),
        [(skeleton.number(load), number) for number, one in enumerate(skeleton.events) for load in one.dependencies],
    )


def _is_strong(events: tuple[Event, ...]) -> NDArray[np.bool_]:
    """Strong operations (table 20): memory fences, and memory operations that are not weak."""
    return np.array([one.order not in ("", "weak") for one in events])


def _overlaps(events: tuple[Event, ...]) -> tuple[Relation, Relation, Relation]:
    """Pairs that access a common word; that do so at one virtual address (8.2.1); and all of whose words are common."""
    size = len(events)
    location, address, complete = (np.zeros((size, size), dtype=bool) for _ in range(3))
    for a, one in enumerate(events):
        for b, other in enumerate(events):
            location[a, b] = bool(set(one.cells) & set(other.cells))
            address[a, b] = location[a, b] and one.name == other.name
            complete[a, b] = address[a, b] and one.cells == other.cells
    return location, address, complete


def _place(skeleton: Skeleton, event: Event) -> Place | None:
    return None if event.thread == INITIAL else skeleton.places[event.thread]


def _scoped(skeleton: Skeleton) -> Relation:
    """From a strong operation to operations of threads that its scope includes (8.5)."""
    size = len(skeleton.events)
    relation = np.zeros((size, size), dtype=bool)
    for a, one in enumerate(skeleton.events):
        here = _place(skeleton, one)
        if here is None or not one.scope:
            continue
        for b, other in enumerate(skeleton.events):
            there = _place(skeleton, other)
            relation[a, b] = there is not None and (one.thread == other.thread or here.shares(one.scope, there))
    return relation


def _same_block(skeleton: Skeleton) -> Relation:
    blocks = [
        None if place is None else (place.rank, place.block)
        for place in (_place(skeleton, one) for one in skeleton.events)
    ]
    return np.array([[one is not None and one == other for other in blocks] for one in blocks])


def _release_patterns(
    events: tuple[Event, ...], order: Relation, same_address: Relation, strong_write: NDArray[np.bool_]
) -> Relation:
    """Release patterns (8.8), from the first operation to the write that another thread may observe."""
    release = np.array([one.kind == "W" and one.order == "release" for one in events])
    fence = np.array([one.kind == "F" and one.order in ("release", "acq_rel", "sc") for one in events])
    alone = _diagonal(release)
    then_write = (order & same_address) & release[:, None] & strong_write
    after_fence = order & fence[:, None] & strong_write
    return np.asarray(alone | then_write | after_fence)


def _acquire_patterns(
    events: tuple[Event, ...], order: Relation, same_address: Relation, strong_read: NDArray[np.bool_]
) -> Relation:
    """Acquire patterns (8.8), from the read that observes to the last operation. A red's read begins none."""
    acquire = np.array([one.kind == "R" and one.order == "acquire" and not one.is_red for one in events])
    fence = np.array([one.kind == "F" and one.order in ("acquire", "acq_rel", "sc") for one in events])
    alone = _diagonal(acquire)
    then_acquire = (order & same_address) & strong_read[:, None] & acquire
    before_fence = order & strong_read[:, None] & fence
    return np.asarray(alone | then_acquire | before_fence)


def _sc_fences(events: tuple[Event, ...], morally_strong: Relation) -> Relation:
    """Pairs of fence.sc that Fence-SC order relates (8.9.3), and each with itself."""
    fence = np.array([one.kind == "F" and one.order == "sc" for one in events])
    return np.asarray((morally_strong | np.eye(len(events), dtype=bool)) & fence[:, None] & fence)


def _proxy_fence_of(
    events: tuple[Event, ...], is_memory: NDArray[np.bool_], is_proxy_fence: NDArray[np.bool_]
) -> Relation:
    """From a proxy fence to accesses of its proxy; the model of ISCA 2022 wants both in one block.

    The implicit fence of a wait for bulk copies is one for these copies.
    """
    proxies = np.array([one.proxy for one in events])
    waits = np.array([one.is_wait for one in events])
    explicit = (is_proxy_fence & ~waits)[:, None] & is_memory & (proxies[:, None] == proxies)
    return np.asarray(explicit | (waits[:, None] & inverse(_issued(events)) & is_memory))


# Orders of executions


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of 8.9 in a batch of executions, each an array [execution, from, to]."""

    reads_from: Relation
    fence_sc: Relation
    observation: Relation
    synchronizes: Relation
    base: Relation
    preserved: Relation
    causality: Relation


def orders(one: Fixed, reads_from: Relation, fence_sc: Relation) -> Orders:
    """Return the orders that follow from what reads return and from the order of fence.sc."""
    observation = _observation(one, reads_from)
    # 8.9.4: patterns whose first and last operation are morally strong, fence.sc, barriers
    patterns = then(then(one.release_pattern, observation), one.acquire_pattern) & one.morally_strong
    synchronizes = patterns | fence_sc | one.barriers
    # 8.9.5: base causality order
    base = closed(one.program_order | one.issued | synchronizes)
    preserved = _preserved(one, base)
    # 8.9.5: causality order; the initial writes come before all threads start (8.2.6)
    started = one.is_initial[:, None] & ~one.is_initial & one.same_location
    causality = preserved | then(observation, preserved) | started
    return Orders(reads_from, fence_sc, observation, synchronizes, base, preserved, causality)


def _observation(one: Fixed, reads_from: Relation) -> Relation:
    """Observation order (8.9.2): a morally strong read of a write, or of one that atomic operations made of it."""
    observed = reads_from & one.morally_strong
    if not one.update.any():
        return observed
    updated = then(one.update, observed)
    return np.asarray(observed | then(observed, closed(updated)))


def _preserved(one: Fixed, base: Relation) -> Relation:
    """Proxy-preserved base causality order (8.9.5).

    The ISA has no rule for fences between proxies other than aliases. They are as in "Mixed-Proxy Extensions for the
    NVIDIA PTX Memory Consistency Model" (ISCA 2022, 6.2.4): an access of another proxy joins base causality where a
    fence of that proxy, of the same block, comes after it (before it, for one that comes later).
    """
    generic = _diagonal(one.is_generic)
    leave = generic | (base & inverse(one.proxy_fence_of))
    enter = generic | (base & one.proxy_fence_of)
    has_others = bool((one.is_read | one.is_write)[~one.is_generic].any())
    through = then(then(leave, base), enter) if has_others else base
    preserved = through & one.same_address
    if has_others:
        preserved |= base & one.same_address & one.same_proxy & one.same_block
    if one.is_alias_fence.any():
        fence = _diagonal(one.is_alias_fence)
        linked = then(then(then(then(leave, base), fence), base), enter)
        preserved |= linked & one.same_location
    return np.asarray(preserved)


# Axioms


def violated(one: Fixed, found: Orders, from_reads: Relation, coherence: Relation) -> dict[str, Relation]:
    """Return, for each axiom (8.10), the pairs of events that contradict it in each execution: none if it holds."""
    writes = one.is_write[:, None] & one.is_write & one.same_location
    communication = found.reads_from | from_reads | coherence
    per_location = closed((communication & one.morally_strong) | (one.program_order & one.same_address))
    # 8.10.3: an atomic operation reads from before a morally strong write that its own write follows,
    atomic = then(from_reads & one.morally_strong, coherence & one.morally_strong) & one.update
    # or a read takes one byte from a morally strong write and another from before it
    torn = inverse(found.reads_from) & from_reads & one.morally_strong
    thin_air = closed(found.reads_from | one.dependency)
    itself = np.eye(one.size, dtype=bool)
    return {
        "Coherence": found.causality & writes & ~coherence,
        "Fence-SC": found.base & one.sc_fences & ~found.fence_sc,
        "Atomicity": atomic | torn,
        "No-Thin-Air": thin_air & itself,
        "SC-per-Location": per_location & itself,
        "Causality": (found.reads_from | from_reads) & inverse(found.causality),
    }


def races(one: Fixed, found: Orders) -> Relation:
    """Return the pairs that conflict, are not morally strong and not related in causality order (8.7.1)."""
    conflict = one.same_location & (one.is_write[:, None] | one.is_write)
    conflict = conflict & ~np.eye(one.size, dtype=bool) & ~one.update & ~inverse(one.update)
    ordered = found.causality | inverse(found.causality)
    threads = ~(one.is_initial[:, None] | one.is_initial)
    return np.asarray(conflict & threads & ~one.morally_strong & ~ordered)


def has_late_loads(one: Fixed, found: Orders) -> NDArray[np.bool_]:
    """Return, for each execution, whether some load takes effect after a later store of its own thread.

    It does if no order of all steps has each thread's in program order, and each read after the write that it returns.
    """
    steps = closed(one.program_order | one.issued | found.reads_from | found.fence_sc | one.barriers)
    itself = np.diagonal(steps, axis1=-2, axis2=-1)  # barriers that meet are one step
    return np.asarray((itself & (one.is_read | one.is_write)).any(axis=-1))


def is_mixed(one: Fixed) -> Relation:
    """Return the pairs that overlap in part only: a race of these is beyond the model (8.7.2)."""
    partial = [[bool(set(a.cells) & set(b.cells)) and a.cells != b.cells for b in one.events] for a in one.events]
    return np.array(partial)
