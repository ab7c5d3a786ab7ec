"""Small kernels under the race checker: each order that is there gives no finding, each that is taken away gives one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from simulator_harness import executable, make_world, module, put, start, succeed

from simulator.fabric import SimulatorFabric
from simulator.races.finding import Finding

STORE = "st.global.b32 [%peer], %r1;"
LOAD = "ld.global.b32 %r3, [%data];"
RELEASE = "st.release.sys.global.b32 [%peerflag], %r1;"
RELAXED = "st.relaxed.sys.global.b32 [%peerflag], %r1;"
FENCE = "fence.acq_rel.sys;"


def poll(order: str = "acquire.sys", flag: str = "%flag", label: str = "SPIN") -> str:
    return f"{label}: ld.{order}.global.b32 %r2, [{flag}]; setp.eq.u32 %p2, %r2, 0; @%p2 bra {label};"


def found(
    code: Sequence[str], grid: int = 1, block: int = 1, launches: int = 1, before: str = "", is_apart: bool = True
) -> tuple[Finding, ...]:
    """What the checker finds when each rank runs its own code. is_apart: the hosts meet between launches."""
    ranks = len(code)
    jumps = "".join(f"setp.eq.u32 %p1, %rank, {rank}; @%p1 bra RANK{rank};" for rank in range(ranks))
    bodies = "\n".join(f"RANK{rank}: mov.u32 %r1, 1; mov.u32 %r9, %tid.x; {one} ret;" for rank, one in enumerate(code))
    parameters = ["u64 data", "u64 peer", "u64 flag", "u64 peerflag", "u64 all", "u32 rank"]
    ptx = module(jumps + bodies, parameters, before)
    world = make_world(ranks, races=True)

    def program(fabric: SimulatorFabric) -> None:
        data = put(fabric, "data", np.zeros(1024, np.uint32))
        flag = put(fabric, "flag", np.zeros(64, np.uint32))
        peer = (fabric.rank + 1) % ranks
        multicast = fabric.multicast_address(data)
        values = [data.address, fabric.peer_address(data, peer), flag.address, fabric.peer_address(flag, peer)]
        fabric.barrier()
        for _ in range(launches):
            start(fabric, executable(ptx), grid, block, [*values, multicast, fabric.rank])
            fabric.synchronize()
            if is_apart:
                fabric.barrier()
        fabric.barrier()

    succeed(world, program)
    return world.findings


def missing(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    """Severity and what is missing of the findings about data."""
    return {(one.severity, one.missing) for one in findings if "flag" not in one.first.tensor}


MESSAGES = {
    "release and acquire": (STORE + RELEASE, poll() + LOAD, ""),
    "red and atom": (
        STORE + "red.release.sys.global.add.u32 [%peerflag], %r1;",
        "SPIN: atom.acquire.sys.global.add.u32 %r2, [%flag], 0; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;" + LOAD,
        "",
    ),
    "fences": (STORE + FENCE + RELAXED, poll("relaxed.sys") + FENCE + LOAD, ""),
    "fence and acquire": (STORE + FENCE + RELAXED, poll() + LOAD, ""),
    "volatile with fences": (STORE + "membar.sys; st.volatile.global.b32 [%peerflag], %r1;", poll("volatile") + "membar.sys;" + LOAD, ""),
    "relaxed store": (STORE + RELAXED, poll() + LOAD, "a release"),
    "relaxed load": (STORE + RELEASE, poll("relaxed.sys") + LOAD, "an acquire"),
    "narrow release": (STORE + RELEASE.replace("sys", "gpu"), poll() + LOAD, "a wider scope"),
    "narrow acquire": (STORE + RELEASE, poll("acquire.gpu") + LOAD, "a wider scope"),
    "narrow fence": (STORE + "fence.acq_rel.gpu;" + RELAXED, poll() + LOAD, "a wider scope"),
    "narrow fence of the reader": (STORE + RELEASE, poll("relaxed.sys") + "fence.acq_rel.gpu;" + LOAD, "a wider scope"),
    "volatile without fences": (STORE + "st.volatile.global.b32 [%peerflag], %r1;", poll("volatile") + LOAD, "a release"),
    "flag before data": (RELEASE + STORE, poll() + LOAD, "a barrier"),
    "data before flag": (STORE + RELEASE, LOAD + poll(), "a barrier"),
    "fence before data": (FENCE + STORE + RELAXED, poll() + LOAD, "a release"),
    "red is no acquire": (STORE + RELEASE, poll("relaxed.sys") + "red.relaxed.sys.global.add.u32 [%flag], 0;" + LOAD, "an acquire"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_message_passing(name: str) -> None:
    writer, reader, what = MESSAGES[name]
    findings = [one for one in found([writer, reader]) if one.first.tensor == "data"]
    if not what:
        assert not findings, findings[0].sentence()
        return
    assert findings
    if name not in ("flag before data", "data before flag"):  # these lack an order of the program
        assert {one.missing for one in findings} == {what}
    assert {one.severity for one in findings} == {"race"}


def test_a_finding_names_both_accesses() -> None:
    (one,) = found([STORE + RELAXED, poll() + LOAD])
    assert (one.first.rank, one.first.block, one.first.thread, one.first.tensor, one.first.element) == (
        0,
        0,
        0,
        "data",
        0,
    )
    assert (one.second.rank, one.second.text) == (1, "ld.global.b32 %r3, [%data]")
    assert one.first.line < one.second.line
    assert one.sentence().startswith("race: a release is missing between `st.global.b32 [%peer], %r1` (PTX line ")


def test_a_relaxed_word_is_no_race_and_carries_itself() -> None:
    """LL: data and flag in one relaxed vector store, polled by one vector load."""
    writer = "st.relaxed.sys.global.v2.b32 [%peer], {%r1, %r1};"
    reader = "SPIN: ld.relaxed.sys.global.v2.b32 {%r2, %r3}, [%data]; setp.eq.u32 %p2, %r3, 0; @%p2 bra SPIN;"
    assert not found([writer, reader])
    assert missing(found([writer.replace("relaxed.sys.", ""), reader])) == {("race", "a release")}


@pytest.mark.parametrize(
    ("middle", "what"),
    [(poll() + RELEASE, ""), (poll("relaxed.sys") + RELEASE, "an acquire"), (poll() + RELAXED, "a release")],
)
def test_three_ranks_pass_on_what_they_know(middle: str, what: str) -> None:
    """Rank 0 writes its own data; 1 passes its flag on; 2 reads the data of 0, which is its peer."""
    findings = found(["st.global.b32 [%data], %r1;" + RELEASE, middle, poll() + "ld.global.b32 %r3, [%peer];"])
    assert missing(findings) == ({("race", what)} if what else set())


@pytest.mark.parametrize(
    ("sync", "is_clean"), [("bar.sync 0;", True), ("bar.sync 1, 64;", True), ("bar.warp.sync -1;", False), ("", False)]
)
def test_threads_of_a_block_meet(sync: str, is_clean: bool) -> None:
    body = f"mul.wide.u32 %d1, %r9, 4; add.u64 %d1, %data, %d1; st.global.b32 [%d1], %r1; {sync} xor.b32 %r8, %r9, 32; mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; ld.global.b32 %r3, [%d1];"
    assert missing(found([body], block=64)) == (set() if is_clean else {("race", "a barrier")})
    within = body.replace("%r9, 32", "%r9, 1")
    clean_within = sync != ""
    assert missing(found([within], block=64)) == (set() if clean_within else {("race", "a barrier")})


@pytest.mark.parametrize(("sync", "is_clean"), [("bar.sync 0;", True), ("", False)])
def test_shared_memory(sync: str, is_clean: bool) -> None:
    body = f"mov.u32 %r7, buffer; mul.lo.u32 %r8, %r9, 4; add.u32 %r8, %r8, %r7; st.shared.b32 [%r8], %r1; {sync} xor.b32 %r8, %r9, 33; mul.lo.u32 %r8, %r8, 4; add.u32 %r8, %r8, %r7; ld.shared.b32 %r3, [%r8];"
    declared = ".shared .align 16 .b8 buffer[256];"
    assert missing(found([body], block=64, before=declared)) == (set() if is_clean else {("race", "a barrier")})


def test_bytes_of_a_word_are_apart() -> None:
    body = "cvt.u64.u32 %d1, %r9; add.u64 %d1, %data, %d1; cvt.u16.u32 %h1, %r9; st.global.b8 [%d1], %h1;"
    assert not found([body], block=64)


def test_lanes_that_store_different_values_to_one_address() -> None:
    assert not found(["st.global.b32 [%data], %r1;"], block=32)
    (one,) = found(["st.global.b32 [%data], %r9;"], block=32)
    assert one.first.line == one.second.line
    assert one.first.thread != one.second.thread


@pytest.mark.parametrize("wait", ["", "wait"])
def test_writes_after_reads_of_the_launch_before(wait: str) -> None:
    """Rank 1 reads rank 0's data; rank 0 writes them in the next launch. Only an end barrier holds it back."""
    told, waits = ("st.release.sys.global.b32 [%peerflag+4], %r1;", "SPIN: ld.acquire.sys.global.b32 %r2, [%flag+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;") if wait else ("", "")  # fmt: skip
    code = ["st.global.b32 [%data], %r1;" + waits, "ld.global.b32 %r3, [%peer];" + told]
    findings = found(code, launches=2, is_apart=False)
    reused = [one for one in findings if one.first.rank == 1 and one.second.rank == 0]
    assert bool(reused) != bool(wait)


class TestProxies:
    FLAG = "st.release.sys.global.b32 [%peerflag], %r1;"

    @pytest.mark.parametrize(
        ("writer", "reader", "is_clean"),
        [("fence.proxy.alias;", "", True), ("", "fence.proxy.alias;", True), ("", "", False)],
    )
    def test_alias(self, writer: str, reader: str, is_clean: bool) -> None:
        """Rank 0 writes its own data; rank 1 reads them through the switch."""
        code = [
            f"st.global.b32 [%data], %r1; {writer} {self.FLAG}",
            f"{poll()} {reader} multimem.ld_reduce.weak.global.add.u32 %r3, [%all];",
        ]
        assert missing(found(code)) == (set() if is_clean else {("proxy", "fence.proxy.alias")})

    def test_alias_without_an_order_is_a_race(self) -> None:
        code = [
            f"st.global.b32 [%data], %r1; {RELAXED}",
            f"{poll()} multimem.ld_reduce.weak.global.add.u32 %r3, [%all];",
        ]
        assert missing(found(code)) == {("race", "a release")}

    def test_a_read_that_bypasses_l1_after_a_relaxed_poll_is_formal(self) -> None:
        code = [
            f"multimem.st.weak.global.b32 [%all], %r1; {self.FLAG}",
            f"{poll('relaxed.sys')} multimem.ld_reduce.weak.global.add.u32 %r3, [%all];",
        ]
        assert missing(found(code)) == {("formal", "an acquire")}

    SHARED = ".shared .align 16 .b8 buffer[64];\n.shared .align 8 .b64 barrier;"
    COPY = "cp.async.bulk.global.shared::cta.bulk_group [%data], [%r6], 16; cp.async.bulk.commit_group;"

    @pytest.mark.parametrize(("fence", "is_clean"), [("fence.proxy.async;", True), ("", False)])
    def test_async(self, fence: str, is_clean: bool) -> None:
        body = f"mov.u32 %r6, buffer; st.shared.v4.b32 [%r6], {{%r1, %r1, %r1, %r1}}; {fence} {self.COPY} cp.async.bulk.wait_group 0;"
        assert missing(found([body], before=self.SHARED)) == (set() if is_clean else {("proxy", "fence.proxy.async")})

    @pytest.mark.parametrize(
        ("wait", "is_clean"), [("cp.async.bulk.wait_group 0;", True), ("cp.async.bulk.wait_group.read 0;", False)]
    )
    def test_bulk_groups(self, wait: str, is_clean: bool) -> None:
        """The destination is read by the thread that waited; .read waits for the source alone."""
        body = f"mov.u32 %r6, buffer; st.shared.v4.b32 [%r6], {{%r1, %r1, %r1, %r1}}; fence.proxy.async; {self.COPY} {wait} ld.global.b32 %r3, [%data];"
        findings = found([body], before=self.SHARED)
        assert bool(findings) != is_clean

    LOADED = """mov.u32 %r6, buffer; mov.u32 %r7, barrier; setp.ne.u32 %p3, %r9, 0; @%p3 bra JOIN;
        mbarrier.init.shared.b64 [%r7], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 _, [%r7], 16;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%data], 16, [%r7];
        JOIN: bar.sync 0;"""
    WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r7], 0; @!%p4 bra WAIT;"

    @pytest.mark.parametrize("waits", [True, False])
    def test_mbarriers(self, waits: bool) -> None:
        """Each thread that waited may read what the copy wrote; without a wait nobody may overwrite the source."""
        used = "ld.shared.b32 %r3, [%r6];" if waits else ""
        body = f"{self.LOADED} {self.WAIT if waits else ''} {used} @%p3 ret; st.global.b32 [%data], %r1;"
        if not waits:
            body += self.WAIT  # the block must outlive the copy
        assert bool(found([body], block=64, before=self.SHARED)) != waits

    @pytest.mark.parametrize(
        ("wait", "is_clean"),
        [("cp.async.wait_group 0;", True), ("cp.async.wait_all;", True), ("cp.async.wait_group 1;", False)],
    )
    def test_cp_async(self, wait: str, is_clean: bool) -> None:
        """The source is overwritten: only after the copy was waited for."""
        body = f"mov.u32 %r6, buffer; cp.async.ca.shared.global [%r6], [%data], 16; cp.async.commit_group; {wait} st.global.b32 [%data], %r1;"
        assert bool(found([body], before=self.SHARED)) != is_clean


def test_hosts_have_to_meet() -> None:
    """A host writes what another rank's kernel reads: clean after a barrier of the hosts, and only then."""
    for meets in (True, False):
        world = make_world(2, races=True)
        ptx = module("ld.global.b32 %r3, [%peer];", ["u64 peer"])

        def program(fabric: SimulatorFabric, meets: bool = meets) -> None:
            data = put(fabric, "data", np.zeros(4, np.uint32))
            fabric.barrier()
            start(fabric, executable(ptx), 1, 1, [fabric.peer_address(data, 1 - fabric.rank)])
            fabric.synchronize()
            if meets:
                fabric.barrier()
            put_again = np.ones(4, np.uint32)
            import torch

            fabric.write(data, 0, torch.from_numpy(put_again.view(np.uint8)))
            fabric.barrier()

        succeed(world, program)
        assert bool(world.findings) != meets


def test_nothing_is_found_by_a_world_that_does_not_look() -> None:
    world = make_world(1)
    assert world.races is None
    assert world.findings == ()
