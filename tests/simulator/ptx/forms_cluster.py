"""Generated forms of clusters, legal and illegal, for the assembler and the simulator to judge (test_ptxas)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

COUNTED = "mbarrier::complete_tx::bytes"
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "bf16", "f32", "f64")
PACKED = ("f16x2", "bf16x2")
BITS = ("b8", "b16", "b32", "b64")


def registers_for(kind: str) -> str:
    """The name of a bank of registers that hold a type."""
    special = {"pred": "%p", "f32x2": "%d", "8": "%h", "16": "%h", "32": "%r", "64": "%d"}
    return special.get(kind) or ("%r" if kind.endswith("x2") else special[kind.lstrip("busf")])


def held(bank: str, count: int, first: int = 1) -> str:
    """A register of a bank, or a vector of several."""
    return f"{bank}{first}" if count == 1 else "{" + ", ".join(f"{bank}{n + first}" for n in range(count)) + "}"


def clusters() -> Iterator[str]:
    for space, kind in product(
        ("", ".shared", ".shared::cta", ".shared::cluster", ".global"), ("u32", "u64", "b32", "s64", "u16")
    ):
        bank = registers_for(kind)
        for source in (f"{bank}2", "kernel_shared", "kernel_shared+8"):
            yield f"mapa{space}.{kind} {bank}1, {source}, %r3"
            yield f"getctarank{space}.{kind} %r1, {source}"
    for step, order, aligned in product(
        ("arrive", "wait", "sync"), ("", ".release", ".relaxed", ".acquire", ".acq_rel"), ("", ".aligned")
    ):
        yield f"barrier.cluster.{step}{order}{aligned}"
    yield from ("bar.cluster.arrive", "barrier.cluster", "barrier.cluster.arrive 0", "barrier.cluster.wait %r1")
    for order, of, scope in product(
        ("", ".acquire", ".release", ".acq_rel"), ("cta", "cluster"), ("", ".cta", ".cluster", ".gpu")
    ):
        yield f"fence{order}.sync_restrict::shared::{of}{scope}"
    yield from (
        f"fence.proxy.async.{space}" for space in ("global", "shared::cta", "shared::cluster", "shared", "local")
    )
    yield from _accesses()
    for name in ("clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
        yield from (f"mov.u32 %r1, %{name}.{axis}" for axis in "xyz")
    yield from ("mov.u32 %r1, %cluster_ctarank", "mov.u32 %r1, %cluster_nctarank", "mov.pred %p1, %is_explicit_cluster")
    yield from (
        "mov.u64 %d1, %gridid",
        "mov.u32 %r1, %gridid",
        "mov.u32 %r1, %envreg1",
        "mov.u32 %r1, %envreg2",
        "mov.u32 %r1, %is_explicit_cluster",
        "mov.pred %p1, %cluster_ctarank",
    )


def _accesses() -> Iterator[str]:
    orders = {
        "ld": [
            "",
            ".weak",
            ".relaxed.cta",
            ".acquire.cluster",
            ".release.cluster",
            ".acquire",
            ".volatile",
            ".mmio.relaxed.sys",
        ],
        "st": [
            "",
            ".weak",
            ".relaxed.gpu",
            ".release.cluster",
            ".acquire.cluster",
            ".release",
            ".volatile",
            ".mmio.relaxed.sys",
        ],
    }
    for opcode, vector, kind in product(("ld", "st"), (1, 2, 4, 8), (*INTEGERS, *BITS, *FLOATS)):
        for order in orders[opcode] if kind in ("b32", "f64") else ("",):
            bank = registers_for(kind)
            given = held(bank, vector)
            dot = f".v{vector}" if vector > 1 else ""
            yield f"{opcode}{order}.shared::cluster{dot}.{kind} " + (
                f"{given}, [%d20]" if opcode == "ld" else f"[%d20], {given}"
            )
    words = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
    for opcode, word, noftz, kind in product(
        ("atom", "red"), words, ("", ".noftz"), (*INTEGERS[2:], *BITS[1:], *FLOATS, *PACKED)
    ):
        bank = registers_for(kind)
        sources = f"{bank}2, {bank}3" if word == "cas" else f"{bank}2"
        target = f"{bank}1, " if opcode == "atom" else ""
        yield f"{opcode}.acquire.cluster.shared::cluster.{word}{noftz}.{kind} {target}[%d9], {sources}"
        yield f"{opcode}.relaxed.cluster.shared::cluster.{word}{noftz}.{kind} {target}[%d9], {sources}"


def cluster_copies() -> Iterator[str]:
    kinds = ("b8", "b16", "u16", *(f"{letter}{bits}" for letter in "busf" for bits in (32, 64)), "f16x2")
    spaces = ("", ".shared", ".shared::cta", ".shared::cluster", ".global")
    for order, space, vector, kind in product(("", ".weak", ".relaxed.cluster"), spaces, (1, 2, 4, 8), kinds):
        bank = registers_for(kind)
        given = held(bank, vector)
        dot = f".v{vector}" if vector > 1 else ""
        yield f"st.async{order}{space}.{COUNTED}{dot}.{kind} [%d20], {given}, [%d21]"
    words = ("add", "inc", "dec", "min", "max", "and", "or", "xor", "exch")
    for order, space, word, kind in product(
        ("", ".relaxed", ".relaxed.cluster", ".release.cluster"), spaces, words, kinds
    ):
        yield f"red.async{order}{space}.{COUNTED}.{word}.{kind} [%d20], {registers_for(kind)}1, [%d21]"
    yield from (
        f"red.async.relaxed.{scope}.shared::cluster.{COUNTED}.add.u32 [%r1], %r2, [%r3]"
        for scope in ("cta", "gpu", "sys")
    )
    yield f"st.async.shared::cluster.{COUNTED}.b32 [%r1], %r2, [%r3]"
    yield f"st.async.shared::cluster.{COUNTED}.b32 [%r1], 5, [%r3]"
    yield f"st.async.shared::cluster.{COUNTED}.L2::cache_hint.b32 [%r1], %r2, [%r3], %d4"
    for to, hint, mask in product(
        ("shared::cta", "shared::cluster"), ("", ".L2::cache_hint"), (", %h1", ", 3", ", %r4", "")
    ):
        more = ", %d5" if hint else ""
        yield f"cp.async.bulk.{to}.global.{COUNTED}.multicast::cluster{hint} [%r1], [%d2], 16, [%r3]{mask}{more}"
    yield f"cp.async.bulk.shared::cluster.shared::cta.{COUNTED}.multicast::cluster [%r1], [%r2], 16, [%r3], %h1"


GENERATED = {"clusters": clusters, "cluster_copies": cluster_copies}
MISSING = {
    "clusters": r"(mapa|getctarank)(\.u32 |(\.shared::cluster)?\.s64)|mapa\.u64 %d1, kernel_shared|getctarank\.u64 %r1, kernel_shared"
    r"|(ld|st)\.shared::cluster\.v8\.[usb](8|16) ",
    "cluster_copies": r"(st|red)\.async(\.(weak|relaxed|cluster))*\.shared(::cta)?\.",
}
"""As in test_ptxas. Generic addresses have 64 bits. The PTX ISA has no signed addresses, and st.async and red.async only
for .shared::cluster."""
