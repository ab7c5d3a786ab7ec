"""Vectors of cp.async: what has come when a wait is over, by size, by what is read of it, and by group.

Each thread has 64 bytes of the stage, which it fills before, and an mbarrier of its own.
"""

from itertools import product

import numpy as np

from tests.simulator.bench import SAMPLES, Vector

SHARED = "  .shared .align 16 .b8 lane_stage[8192];\n  .shared .align 8 .b8 lane_barriers[1024];\n"
REGISTERS = ".reg .b32 t, s, m; .reg .b64 g, mg, c; .reg .pred p;"
PLACES = (
    "mov.u32 t, %tid.x; mov.u32 s, lane_stage; mad.lo.u32 s, t, 64, s; mov.u32 m, lane_barriers; "
    "mad.lo.u32 m, t, 8, m; cvt.u64.u32 mg, m; cvta.shared.u64 mg, mg; mov.u64 c, 0; mad.lo.u64 g, %lane64, 64, %in; "
)
WORDS = np.random.default_rng(29).integers(0, 1 << 32, (SAMPLES, 16), np.uint64).astype(np.uint32)
OLD = 0xA5A5A5A5
FILL = " ".join(f"st.shared.b32 [s+{4 * at}], {OLD};" for at in range(4)) + " "
READ = "ld.shared.v4.b32 {d0, d1, d2, d3}, [s]; "
PREFETCHES = ("", ".L2::64B", ".L2::128B", ".L2::256B")


def came(taken, size):
    """The four words of the stage: what was read, zeros up to size, the old ones behind."""
    raw = WORDS[:, :4].copy().view(np.uint8)
    column = np.arange(16)
    raw = np.where(column < taken[:, None], raw, 0)
    raw = np.where(column < size, raw, np.uint8(OLD & 0xFF)).astype(np.uint8)
    words = raw.view(np.uint32)
    return tuple((f"d{at}", "b32", words[:, at]) for at in range(4))


def _vector(key, name, text, taken, size, *inputs):
    return Vector(key, name, PLACES + FILL + text + READ, inputs, came(taken, size), {"from": WORDS}, {}, REGISTERS)


def copies():
    """Whole, in part by src-size, and not at all by ignore-src; hints and prefetches change nothing."""
    sizes = np.arange(SAMPLES, dtype=np.uint32)
    ignored = (sizes % 3 == 0).astype(np.uint32)
    number = 0
    for cache, space, size in product(("ca", "cg"), ("shared", "shared::cta"), (4, 8, 16)):
        if cache == "cg" and size != 16:
            continue
        key = f"cp.async.{cache}.{space}.global"
        taken = sizes * 7 % (size + 1)
        number += 1
        hint, policy = (".L2::cache_hint", ", c") if number % 2 else ("", "")
        prefetch = PREFETCHES[number % 4]
        aim, end = f"{key}{hint}{prefetch} [s], [g+{{from}}], {size}", "cp.async.wait_all; "
        full = np.full(SAMPLES, size)
        yield _vector(key, f"{size}_bytes", f"{aim}{policy}; {end}", full, size)
        yield _vector(key, f"{size}_in_part", f"{aim}, n{policy}; {end}", taken, size, ("n", "b32", taken))
        kept = np.where(ignored, 0, size)
        yield _vector(key, f"{size}_ignored", f"{aim}, i{policy}; {end}", kept, size, ("i", "pred", ignored))
        nothing = f"mov.u64 g, 0; {aim.replace('+{from}', '')}, 0{policy}; {end}"
        yield _vector(key, f"{size}_nowhere", nothing, full * 0, size)


def groups():
    """A wait for all groups but the latest n; a group that nothing was issued for counts."""
    words = tuple((f"d{at}", "b32", WORDS[:, at]) for at in range(4))
    copy = "cp.async.ca.shared.global [s+{at}], [g+{from}+{at}], 4; "
    first, second = ("".join(copy.replace("{at}", str(4 * at)) for at in some) for some in ((0, 1), (2, 3)))
    commit = "cp.async.commit_group; "
    texts = {
        "cp.async.commit_group": first + second + commit + commit + "cp.async.wait_group 1; ",
        "cp.async.wait_group": first + commit + second + commit + "cp.async.wait_group 0; ",
        "cp.async.wait_all": first + commit + second + "cp.async.wait_all; ",
    }
    for key, text in texts.items():
        yield Vector(key, "all", PLACES + FILL + text + READ, (), words, {"from": WORDS}, {}, REGISTERS)
    guarded = f"{first}{second}{commit} setp.lt.u32 p, %lane, 0x80000000; @p cp.async.wait_group 0; "
    yield Vector("cp.async.wait_group", "guarded", PLACES + guarded + READ, (), words, {"from": WORDS}, {}, REGISTERS)


def arrivals():
    """An mbarrier's phase ends with the copies: .noinc is one of its arrivals, the other form one on top."""
    words = tuple((f"d{at}", "b32", WORDS[:, at]) for at in range(4))
    for noinc, space in product((".noinc", ""), ("", ".shared", ".shared::cta")):
        key = f"cp.async.mbarrier.arrive{noinc}{space}.b64"
        place = "[m]" if space else "[mg]"
        own = "" if noinc else "mbarrier.arrive.shared.b64 _, [m]; "
        text = (
            f"mbarrier.init.shared.b64 [m], 1; cp.async.cg.shared.global [s], [g+{{from}}], 16; {key} {place}; {own}"
            "AGAIN: mbarrier.test_wait.parity.shared.b64 p, [m], 0; @!p bra AGAIN; "
        )
        end = "mbarrier.inval.shared.b64 [m]; "
        yield Vector(key, "one_copy", PLACES + text + READ + end, (), words, {"from": WORDS}, {}, REGISTERS)


def family():
    return [*copies(), *groups(), *arrivals()]
