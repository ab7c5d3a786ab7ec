"""Generated forms of cp, multimem.cp and mbarrier, legal and illegal, for test_ptxas."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

COUNTED = "mbarrier::complete_tx::bytes"
HINT = ".L2::cache_hint"
KINDS = (
    "b16", "u16", "b32", "u32", "s32", "b64", "u64", "s64", "f16", "bf16", "f16x2", "bf16x2", "f32", "f64", "f32x2"
)  # fmt: skip
WORDS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")


def lane_copies() -> Iterator[str]:
    for cache, space, size, more in product(
        ("ca", "cg"),
        ("shared", "shared::cta", "shared::cluster"),
        ("4", "8", "16", "12", "%r3"),
        ("", "4", "%r2", "%p1"),
    ):
        yield f"cp.async.{cache}.{space}.global [%r1], [%d1], {size}" + (f", {more}" if more else "")
    for cache, words, more in product(
        ("ca", "cg"),
        ("", ".L2::64B", ".L2::128B", ".L2::256B", HINT, f"{HINT}.L2::128B", f".L2::64B{HINT}", ".L2::64B.L2::128B"),
        ("", ", %d2", ", 8", ", 8, %d2", ", %p1", ", %p1, %d2"),
    ):
        yield f"cp.async.{cache}.shared.global{words} [%r1], [%d1], 16{more}"
    for noinc, space in product(("", ".noinc"), ("", ".shared", ".shared::cta", ".shared::cluster", ".global")):
        yield f"cp.async.mbarrier.arrive{noinc}{space}.b64 [{'%r1' if space else '%d1'}]"
    for bulk, words in product(
        ("", ".bulk"),
        ("commit_group", "wait_group 0", "wait_group 7", "wait_group.read 1", "wait_all", "wait_group %r1"),
    ):
        yield f"cp.async{bulk}.{words}"
        yield f"@%p1 cp.async{bulk}.{words}"
    yield "cp.async.bulk.wait_group"


def bulk_copies() -> Iterator[str]:
    spaces = ("shared::cta", "shared::cluster", "shared", "global")
    for to, origin, ends, words in product(
        spaces, spaces, (COUNTED, "bulk_group"), ("", HINT, ".cp_mask", f"{HINT}.cp_mask", ".L2::128B")
    ):
        counter = ", [%r3]" if ends == COUNTED else ""
        more = (", %d3" if HINT in words else "") + (", %h1" if "cp_mask" in words else "")
        target, source = ("%d1" if to == "global" else "%r1"), ("%d2" if origin == "global" else "%r2")
        yield f"cp.async.bulk.{to}.{origin}.{ends}{words} [{target}], [{source}], 16{counter}{more}"
    store = "cp.async.bulk.global.shared::cta.bulk_group"
    yield from (f"{store} [%d1], [%r2], {size}" for size in ("24", "4096", "%r4", "%d4"))
    yield from (f"{store}.cp_mask [%d1], [%r2], 16, {mask}" for mask in ("5", "%r4", "%h2"))
    yield from (f"{store}{HINT} [%d1], [%r2], 16", f"{store} [%d1], [%r2], 16, %d3", f"{store}.noftz [%d1], [%r2], 16")
    for words in (".L2.global", f".L2.global{HINT}", ".L2", ".L1.global"):
        yield f"cp.async.bulk.prefetch{words} [%d1], %r1" + (", %d2" if HINT in words else "")
    yield "cp.async.bulk.prefetch.L2.global [%d1], 40"


def bulk_reductions() -> Iterator[str]:
    ways = (("shared::cluster", COUNTED), ("global", "bulk_group"), ("shared::cta", COUNTED))
    for (to, ends), word, noftz, kind in product(ways, WORDS, ("", ".noftz"), KINDS):
        target, counter = ("%d1" if to == "global" else "%r1"), (", [%r3]" if ends == COUNTED else "")
        yield f"cp.reduce.async.bulk.{to}.shared::cta.{ends}.{word}{noftz}.{kind} [{target}], [%r2], 16{counter}"
    yield f"cp.reduce.async.bulk.global.shared::cta.bulk_group{HINT}.add.u32 [%d1], [%r1], 16, %d2"
    yield f"cp.reduce.async.bulk.global.shared::cta.bulk_group{HINT}.add.noftz.f16 [%d1], [%r1], 16, %d2"
    yield f"cp.reduce.async.bulk.shared::cluster.shared::cta.{COUNTED}{HINT}.add.u32 [%r1], [%r2], 16, [%r3], %d2"


def multicast_copies() -> Iterator[str]:
    where = "bulk.global.shared::cta.bulk_group"
    for word, noftz, kind in product(WORDS, ("", ".noftz"), KINDS):
        yield f"multimem.cp.reduce.async.{where}.{word}{noftz}.{kind} [%d1], [%r1], 16"
    yield f"multimem.cp.async.{where} [%d1], [%r1], 16"
    yield f"multimem.cp.async.{where} [%d1], [%r1], %r2"
    yield f"multimem.cp.async.{where}.cp_mask [%d1], [%r1], 16, %h1"
    yield f"multimem.cp.async.{where}{HINT} [%d1], [%r1], 16, %d2"
    yield "multimem.cp.async.bulk.shared::cta.bulk_group [%d1], [%r1], 16"
    yield f"multimem.cp.async.bulk.global.shared::cta.{COUNTED} [%d1], [%r1], 16, [%r2]"


def _dotted(*words: str) -> str:
    return ".".join(word for word in words if word)


def mbarriers() -> Iterator[str]:
    orders = (
        "", "release.cta", "release.cluster", "relaxed.cta", "relaxed.cluster", "acquire.cta", "acquire.cluster",
        "release", "cta", "release.gpu", "acq_rel.cta",
    )  # fmt: skip
    for space in ("", "shared", "shared::cta", "shared::cluster", "global"):
        place = "[%r1]" if space else "[%d1]"
        for order in orders:
            yield f"{_dotted('mbarrier.init', order, space, 'b64')} {place}, 3"
            yield f"{_dotted('mbarrier.inval', order, space, 'b64')} {place}"
            for word in ("expect_tx", "complete_tx"):
                yield f"{_dotted('mbarrier', word, order, space, 'b64')} {place}, 16"
            for word, more, state, count in product(
                ("arrive", "arrive_drop"), ("", "noComplete", "expect_tx"), ("%d2", "_"), ("", ", 2", ", %r5")
            ):
                yield f"{_dotted('mbarrier', word, more, order, space, 'b64')} {state}, {place}{count}"
            for word, parity, limit in product(("test_wait", "try_wait"), ("", "parity"), ("", ", %r5")):
                phase = "%r2" if parity else "%d2"
                yield f"{_dotted('mbarrier', word, parity, order, space, 'b64')} %p1, {place}, {phase}{limit}"
    yield from ("mbarrier.pending_count.b64 %r1, %d2", "mbarrier.pending_count.b64 %d1, %d2")
    yield "mbarrier.pending_count.shared.b64 %r1, %d2"


GENERATED = {
    "lane_copies": lane_copies,
    "bulk_copies": bulk_copies,
    "bulk_reductions": bulk_reductions,
    "multicast_copies": multicast_copies,
    "mbarriers": mbarriers,
}
VERSIONS = {"multicast_copies": "9.1"}
"""The PTX version that a set needs."""
