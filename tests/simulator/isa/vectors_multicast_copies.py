"""Vectors of multimem.cp: bulk copies and reductions into every replica, which hold different bytes before.

The cells are dealt out to the ranks, so that each is changed once: its new value does not depend on any order.
"""

import numpy as np

import tests.simulator.isa.vectors_atomic as atomics
from tests.simulator.isa.vectors_bulk import TO_GLOBAL, elements
from tests.simulator.isa.vectors_multimem import COUNT, MultimemVector

SHARED = "  .shared .align 16 .b8 multicast_stage[1024];\n"
CELL_BYTES = 16
WHERE = "bulk.global.shared::cta.bulk_group"


def _vector(key, given, before, after, mask=None):
    """given: words (ranks, COUNT, 4); before and after: bytes (ranks, COUNT, CELL_BYTES)."""
    ranks = len(given)
    turn = (np.arange(COUNT) % ranks == np.arange(ranks)[:, None]).astype(np.uint32)
    operand = ", b" if mask is not None else ""
    text = (
        "mov.u32 t, %tid.x; mov.u32 s, multicast_stage; mad.lo.u32 s, t, 16, s; "
        "st.shared.v4.b32 [s], {a0, a1, a2, a3}; mad.lo.u64 p, %lane64, 16, %mccells; add.u64 p, p, {cells}; "
        f"setp.ne.u32 q, g, 0; @q {key} [p], [s], 16{operand}; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
    )
    inputs = {"g": ("b32", turn), **{f"a{at}": ("b32", given[:, :, at]) for at in range(4)}}
    if mask is not None:
        inputs["b"] = ("b16", mask)
    cells = [one.reshape(ranks, -1) for one in (before, after)]
    return MultimemVector(
        key.replace(".global", ""), "cells", "{ .reg .b32 t, s; " + text + " }", inputs, {}, None, *cells
    )


def _dealt(given):
    """What changes each cell: the words of the rank whose turn it is, (COUNT, 4)."""
    ranks = len(given)
    return given[np.arange(COUNT) % ranks, np.arange(COUNT)]


def reductions(ranks):
    for word, kinds in TO_GLOBAL.items():
        for kind in kinds.split():
            noftz = ".noftz" if word == "add" and kind in ("f16", "bf16") else ""
            yield _reduction(f"multimem.cp.reduce.async.{WHERE}.{word}{noftz}.{kind}", word, kind, ranks)


def _reduction(key, word, kind, ranks):
    """A replica's cell holds what the next replica's next cell holds, so that all differ."""
    old, new, _ = elements(word, kind)
    before, given = (np.stack([np.roll(one, 29 * rank, axis=0)[:COUNT] for rank in range(ranks)]) for one in (old, new))
    function, bits = atomics.function_of(word, kind, in_global=False), atomics.bits_of(kind)
    change = np.ascontiguousarray(_dealt(given)).view(f"u{bits // 8}")
    cells = np.ascontiguousarray(before).view(f"u{bits // 8}")
    after = np.empty_like(cells)
    for place in np.ndindex(*cells.shape):
        after[place] = function(int(cells[place]), int(change[place[1:]]))
    return _vector(key, given, cells.view(np.uint8), after.view(np.uint8))


def copies(ranks):
    rng = np.random.default_rng(41)
    given = rng.integers(0, 1 << 32, (ranks, COUNT, 4), np.uint64).astype(np.uint32)
    before = rng.integers(0, 256, (ranks, COUNT, CELL_BYTES), np.uint16).astype(np.uint8)
    after = np.broadcast_to(np.ascontiguousarray(_dealt(given)).view(np.uint8), before.shape).copy()
    key = f"multimem.cp.async.{WHERE}"
    yield _vector(key, given, before, after)
    mask = rng.integers(0, 1 << 16, (ranks, COUNT)).astype(np.uint16)
    mine = mask[np.arange(COUNT) % ranks, np.arange(COUNT)]
    chosen = mine[:, None] >> np.arange(CELL_BYTES, dtype=np.uint16) & 1 == 1
    yield _vector(f"{key}.cp_mask", given, before, np.where(chosen, after, before), mask)


def family(ranks):
    return [*copies(ranks), *reductions(ranks)]
