"""Vectors of bulk copies, mbarriers and the fences between proxies. When a copy takes place is test_bulk's business.

Each thread has 64 bytes of the stage and an mbarrier of its own, which it makes and takes away again.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from simulator_bench import SAMPLES, Store, Vector

SHARED = "  .shared .align 16 .b8 bulk_stage[8192];\n  .shared .align 8 .b8 bulk_barriers[1024];\n"
REGISTERS = ".reg .b32 t, s, m; .reg .b64 g, o; .reg .pred p;"
ROW_BYTES = 64
PLACES = (
    "mov.u32 t, %tid.x; mov.u32 s, bulk_stage; mad.lo.u32 s, t, 64, s; mov.u32 m, bulk_barriers; "
    "mad.lo.u32 m, t, 8, m; mad.lo.u64 g, %lane64, 64, %in; mad.lo.u64 o, %lane64, 64, %out; "
)
WORDS = np.random.default_rng(11).integers(0, 1 << 32, (SAMPLES, ROW_BYTES // 4), np.uint64).astype(np.uint32)
OFFSETS = np.arange(SAMPLES, dtype=np.int64) * ROW_BYTES
LOAD = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes"
STORE = "cp.async.bulk.global.shared::cta.bulk_group"


def family() -> list[Vector]:
    return [vector for part in (loads(), stores(), waits(), barriers(), fences()) for vector in part]


def wait_for(parity: int, word: str = "try_wait", space: str = "shared::cta") -> str:
    return f"AGAIN: mbarrier.{word}.parity.{space}.b64 p, [m], {parity}; @!p bra AGAIN; "


def loads() -> Iterator[Vector]:
    """Each word of a copy of 48 bytes, which the wait has made visible."""
    for space in ("shared::cta", "shared::cluster"):
        key = f"cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes"
        for number in (0, 5, 11):
            text = (
                f"{PLACES} mbarrier.init.shared::cta.b64 [m], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], 48; "
                f"{key} [s], [g+{{from}}], 48, [m]; {wait_for(0)} ld.shared.b32 d, [s+{4 * number}]; "
                "mbarrier.inval.shared::cta.b64 [m];"
            )
            blobs = {"from": WORDS}
            yield Vector(key, f"word_{number}", text, (), (("d", "b32", WORDS[:, number]),), blobs, {}, REGISTERS)


def stores() -> Iterator[Vector]:
    """From global memory through the stage and out again, one after the other, 16 bytes and more."""
    for size in (16, 64):
        text = (
            f"{PLACES} mbarrier.init.shared::cta.b64 [m], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [m], {size}; "
            f"{LOAD} [s], [g+{{from}}], {size}, [m]; {wait_for(0)} {STORE} [o+{{to}}], [s], {size}; "
            "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; mbarrier.inval.shared::cta.b64 [m];"
        )
        rows = WORDS.view(np.uint8)[:, :size].copy()
        place = {"to": Store(rows, OFFSETS, SAMPLES * ROW_BYTES)}
        yield Vector(STORE, f"{size}_bytes", text, (), (), {"from": WORDS}, place, REGISTERS)


def waits() -> Iterator[Vector]:
    """What a wait for groups promises: of all but the latest n groups; read back from global memory."""
    a = WORDS[:, 0]
    begin = f"{PLACES} add.u64 o, o, {{to}}; add.u32 b, a, 1; " + "".join(
        f"st.shared.b32 [s+{4 * number}], a; " for number in range(8)
    )
    overwrite = "".join(f"st.shared.b32 [s+{4 * number}], b; " for number in range(4))
    first, second = f"{STORE} [o], [s], 16; ", f"{STORE} [o+16], [s+16], 16; "
    commit, all_done, back = "cp.async.bulk.commit_group; ", "cp.async.bulk.wait_group 0; ", "ld.global.b32 d, [o+12]; "
    texts = {
        "cp.async.bulk.commit_group": first
        + commit
        + second
        + commit
        + "cp.async.bulk.wait_group 1; "
        + back
        + all_done,
        "cp.async.bulk.wait_group": first + second + commit + all_done + back,
        # The source may be overwritten once it has been read: what arrives is what it held before.
        "cp.async.bulk.wait_group.read": first
        + second
        + commit
        + "cp.async.bulk.wait_group.read 0; "
        + overwrite
        + all_done
        + back,
    }
    for key, text in texts.items():
        place = {"to": Store(np.repeat(a, 8).view(np.uint8).reshape(SAMPLES, 32), OFFSETS, SAMPLES * ROW_BYTES)}
        inputs, outputs, registers = (("a", "b32", a),), (("d", "b32", a),), f"{REGISTERS} .reg .b32 b;"
        yield Vector(key, "read_back", begin + text, inputs, outputs, {}, place, registers)


def barriers() -> Iterator[Vector]:
    """Phases one after the other, as a string of answers: a bit a question, and what the right answers are."""
    for space in ("shared", "shared::cta"):
        arrive = f"mbarrier.arrive.{space}.b64 _, [m]; "
        expect = f"mbarrier.arrive.expect_tx.{space}.b64 _, [m], 16; "
        copy = f"{LOAD} [s], [g+{{from}}], 16, [m]; "
        scripts = {
            f"mbarrier.init.{space}.b64": ((2, "0?", arrive, "0?", arrive, "0?", "1?"), "0010"),
            f"mbarrier.inval.{space}.b64": ((1, arrive, "0?", "again", "0?", arrive, "0?"), "101"),
            f"mbarrier.arrive.{space}.b64": (
                (3, arrive, f"mbarrier.arrive.release.cta.{space}.b64 _, [m], 2; ", "0?", arrive, "1?", "0?"),
                "101",
            ),
            f"mbarrier.arrive.expect_tx.{space}.b64": ((1, expect, "0?", copy, "0!", "1?"), "00"),
            f"mbarrier.try_wait.parity.{space}.b64": (
                (1, "0?", "1?", arrive, "0?", "1?", arrive, "0?", "1?"),
                "011001",
            ),
            f"mbarrier.test_wait.parity.{space}.b64": ((1, "0?", "1?", arrive, "0?", "1?", arrive, "1?"), "01101"),
        }
        for key, ((count, *steps), answers) in scripts.items():
            word = "test_wait" if "test_wait" in key else "try_wait"
            ask = (
                f"mbarrier.{word}.parity.{space}.b64 p, [m], @; selp.b32 t, 1, 0, p; shl.b32 d, d, 1; or.b32 d, d, t; "
            )
            init, gone = f"mbarrier.init.{space}.b64 [m], {count}; ", f"mbarrier.inval.{space}.b64 [m]; "
            meaning = {"0?": ask.replace("@", "0"), "1?": ask.replace("@", "1"), "again": gone + init}
            meaning["0!"] = wait_for(0, word, space)
            text = PLACES + "mov.u32 d, 0; " + init + "".join(meaning.get(step, step) for step in steps) + gone
            expected = np.full(SAMPLES, int(answers, 2), np.uint32)
            yield Vector(key, "phases", text, (), (("d", "b32", expected),), {"from": WORDS}, {}, REGISTERS)


def fences() -> Iterator[Vector]:
    """They leave every register as it was; memory is one here, whichever proxy looks at it."""
    a = WORDS[:, 1]
    forms = {
        "fence.mbarrier_init": "fence.mbarrier_init.release.cluster",
        "fence.proxy.async": "fence.proxy.async",
        "fence.proxy.async.global": "fence.proxy.async.global",
        "fence.proxy.async.shared::cta": "fence.proxy.async.shared::cta",
    }
    for key, spelled in forms.items():
        text = f"add.u32 d, a, 1; {spelled}; add.u32 d, d, 1;"
        yield Vector(key, "nothing", text, (("a", "b32", a),), (("d", "b32", a + np.uint32(2)),))
