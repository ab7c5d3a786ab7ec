"""Small kernels under the race checker: each order that is there gives no finding, each that is taken away gives one."""

import pytest

from tests.golden import same_text
from tests.simulator.harness import make_world
from tests.symlab.checks.races.race_programs import about_data, found, missing, poll

STORE = "st.global.b32 [%peer], %r1;"
LOAD = "ld.global.b32 %r3, [%data];"
RELEASE = "st.release.sys.global.b32 [%peerflag], %r1;"
RELAXED = "st.relaxed.sys.global.b32 [%peerflag], %r1;"
FENCE = "fence.acq_rel.sys;"


BARRIER, ASYNC = {("race", "a barrier")}, {("proxy", "fence.proxy.async")}


MESSAGES = {
    "release and acquire": (STORE + RELEASE, poll() + LOAD, ""),
    "red and atom": (
        STORE + "red.release.sys.global.add.u32 [%peerflag], %r1;",
        "SPIN: atom.acquire.sys.global.add.u32 %r2, [%flag], 0; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;" + LOAD,
        "",
    ),
    "volatile with fences": (STORE + "membar.sys; st.volatile.global.b32 [%peerflag], %r1;", poll("volatile") + "membar.sys;" + LOAD, ""),
    "relaxed store": (STORE + RELAXED, poll() + LOAD, "a release"),
    "relaxed load": (STORE + RELEASE, poll("relaxed.sys") + LOAD, "an acquire"),
    "narrow release": (STORE + RELEASE.replace("sys", "gpu"), poll() + LOAD, "a wider scope"),
    "narrow fence of the reader": (STORE + RELEASE, poll("relaxed.sys") + "fence.acq_rel.gpu;" + LOAD, "a wider scope"),
    "red is no acquire": (STORE + RELEASE, poll("relaxed.sys") + "red.relaxed.sys.global.add.u32 [%flag], 0;" + LOAD, "an acquire"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_message_passing(name):
    """What is missing has its name; that there is a race or none is compared with the judge (test_agreement.py)."""
    writer, reader, what = MESSAGES[name]
    findings = about_data(writer, reader)
    assert {(one.severity, one.missing) for one in findings} == ({("race", what)} if what else set())


def test_a_finding_names_both_accesses():
    (one,) = found([STORE + RELAXED, poll() + LOAD])
    sides = [(side.rank, side.block, side.thread, side.tensor, side.element) for side in (one.first, one.second)]
    assert sides == [(0, 0, 0, "data", 0), (1, 0, 0, "data", 0)]
    same_text(one.sentence())


def overlapping(writer, reader, assumption=""):
    """Rank 0 stores relaxed words to rank 1, which loads them relaxed when they are there."""
    store, load = f"st.relaxed.sys.global.{writer};", f"ld.relaxed.sys.global.{reader}, [%data];"
    wait = "SPIN: " + load + " setp.eq.u32 %p2, %r4, 0; @%p2 bra SPIN;" if "%r4" in load else load
    return missing(found([store, wait], assumptions=(assumption,) if assumption else ()))


PAIR, PAIR_READ = "v2.b32 [%peer], {%r1, %r1}", "v2.b32 {%r3, %r4}"
ONE_SIZE = "one size of both accesses"


class TestSizes:
    """Strong accesses that overlap in part alone are not morally strong with each other: they race."""

    @pytest.mark.parametrize(
        ("writer", "reader"), [("b32 [%peer+4], %r1", "b64 %d1"), ("b64 [%peer], %d1", "b32 %r3"), (PAIR, "b64 %d1")]
    )
    def test_of_two_sizes_there_is(self, writer, reader):
        assert overlapping(writer, reader) == {("race", ONE_SIZE)}

    def test_words_of_vectors_of_two_lengths_are_of_one_size(self):
        assert not overlapping(PAIR, "v4.b32 {%r3, %r4, %r5, %r6}")

    def test_nothing_is_acquired_from_a_write_of_another_size(self):
        """The flag is two words in the store and one of them in the poll."""
        release = "mov.b64 %d1, 4294967297; st.release.sys.global.b64 [%peerflag], %d1;"
        findings = found([STORE + release, poll() + LOAD])
        assert "race" in {one.severity for one in findings if one.first.tensor == "data"}
        assert (("race", ONE_SIZE)) in {(one.severity, one.missing) for one in findings}
        assert not found([STORE + RELEASE, poll() + LOAD])


class TestAssumptions:
    """What a declared assumption alone explains is an advisory; what it does not explain stays a race."""

    WIDE = "v2.b64 [%peer], {%d1, %d1}"
    WIDE_READ = "v4.b32 {%r3, %r4, %r5, %r6}"
    POLL_WIDE = f"SPIN: ld.relaxed.sys.global.{WIDE_READ}, [%data]; setp.eq.u32 %p2, %r4, 0; @%p2 bra SPIN;"
    AT_LANE = "mul.wide.u32 %d1, %r9, 16; add.u64 %d1, {}, %d1;"
    STORE_LINE = "st.global.v4.b32 [%d1], {%r1, %r1, %r1, %r1};"
    STORE_WIDE = "st.global.v4.b32 [%peer], {%r1, %r1, %r1, %r1};"

    def test_vectors_of_16_bytes_with_elements_of_two_sizes(self):
        writer = f"mov.b64 %d1, 4294967297; st.relaxed.sys.global.{self.WIDE};"
        for assumption, severity in (("vector_16", "advisory"), ("", "race")):
            findings = found([writer, self.POLL_WIDE], assumptions=(assumption,) if assumption else ())
            said = {(one.severity, one.missing, one.assumption) for one in findings}
            assert said == {(severity, ONE_SIZE, assumption)}

    def test_weak_vectors_of_16_bytes_that_a_strong_load_polls(self):
        """LL with plain stores: whoever sees one word has the others."""
        code = [self.STORE_WIDE, self.POLL_WIDE]
        assert missing(found(code)) == {("race", "a release")}
        (one,) = found(code, assumptions=("vector_16",))
        assert (one.severity, one.assumption, one.fails) == ("advisory", "vector_16", False)
        assert "which the assumption 'vector_16' supplies" in one.sentence()

    @pytest.mark.parametrize(("threads", "severity"), [(8, "advisory"), (4, "race"), (16, "advisory")])
    def test_128_bytes_of_a_warp(self, threads, severity):
        """LL128 with plain stores of 16 bytes by each lane: whole lines of 128 bytes, or a part of one."""
        poll = self.POLL_WIDE.replace("[%data]", "[%d1]")
        code = [self.AT_LANE.format("%peer") + self.STORE_LINE, self.AT_LANE.format("%data") + poll]
        findings = found(code, block=threads, assumptions=("warp_128",))
        assert {one.severity for one in findings} == {severity}

    @pytest.mark.parametrize(
        ("writer", "reader"),
        [
            (STORE, "ld.relaxed.sys.global.b32 %r3, [%data];"),  # narrower than 16 bytes
            (STORE_WIDE, f"ld.global.{WIDE_READ}, [%data];"),
            (STORE + RELAXED, poll() + LOAD),  # data and flag apart
            (STORE_WIDE, f"ld.relaxed.gpu.global.{WIDE_READ}, [%data];"),  # a scope that the peer is not in
        ],
    )
    @pytest.mark.parametrize("assumption", ["vector_16", "warp_128"])
    def test_what_they_do_not_explain_stays_a_race(self, writer, reader, assumption):
        findings = about_data(writer, reader, assumptions=(assumption,))
        assert {(one.severity, one.assumption) for one in findings} == {("race", "")}

    POLL_LINE = (
        "{0}: ld.relaxed.sys.global.v4.b32 {{%r3, %r4, %r5, %r6}}, [%d1]; setp.ne.u32 %p3, %r4, %r1; @%p3 bra {0};"
    )
    MEET = "bar.warp.sync 255;"
    SLOWLY = "mov.u32 %r7, 0; SLOW: add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 60; @%p4 bra SLOW;"

    @pytest.mark.parametrize("assumption", ["vector_16", "warp_128"])
    @pytest.mark.parametrize(
        ("told", "waited", "what"),
        [
            (RELEASE, "acquire.sys", ""),
            (RELAXED, "acquire.sys", "a release"),
            (RELEASE, "relaxed.sys", "an acquire"),
            (RELEASE, "acquire.gpu", "a wider scope"),
        ],
    )
    @pytest.mark.parametrize("is_slow", [False, True])
    def test_a_line_that_a_launch_stores_again(self, assumption, told, waited, what, is_slow):
        """The reader says that it has taken the line, and polls for what comes there next. Those polls are explained;
        the load that took the first line is not, whether or not they come after it."""
        writer = self.AT_LANE.format("%peer") + self.STORE_LINE + poll(waited) + self.SLOWLY * is_slow
        reader = self.AT_LANE.format("%data") + self.POLL_LINE.format("FIRST") + self.MEET + told
        writer += "mov.u32 %r1, 2;" + self.STORE_LINE
        reader += "mov.u32 %r1, 2;" + self.POLL_LINE.format("SECOND")
        about = about_data(writer, reader, block=8, assumptions=(assumption,))
        assert {(one.severity, one.missing) for one in about if one.fails} == ({("race", what)} if what else set())
        assert {one.assumption for one in about if not one.fails} == {assumption}

    EPOCH = "ld.global.b32 %r1, [%flag+64]; add.u32 %r1, %r1, 1; bar.warp.sync 255; st.global.b32 [%flag+64], %r1;"
    GRANTED = (
        "SPIN: ld.acquire.sys.global.b32 %r2, [%flag]; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, %r1; @%p2 bra SPIN;"
    )

    @pytest.mark.parametrize("order", ["release", "relaxed"])
    def test_a_poll_of_a_launch_hides_no_load_of_an_earlier_one(self, order):
        """Each launch's reader polls before its writer, which is slow, stores there again."""
        grant = RELEASE.replace("release", order)
        writer = self.AT_LANE.format("%peer") + self.EPOCH + self.GRANTED + self.SLOWLY + self.STORE_LINE
        reader = self.AT_LANE.format("%data") + self.EPOCH + self.POLL_LINE.format("POLL") + self.MEET + grant
        findings = about_data(writer, reader, block=8, launches=2, is_apart=False, assumptions=("warp_128",))
        assert {one.severity for one in findings} == ({"advisory"} if order == "release" else {"advisory", "race"})

    def test_a_kernel_does_not_inherit_what_another_declares(self):
        """Two launches in one world, of which the first declares what both rely on."""
        writer, reader = self.AT_LANE.format("%peer") + self.STORE_LINE, self.AT_LANE.format("%data")
        code = [writer, reader + self.POLL_LINE.format("POLL")]
        for later, severities in ((("warp_128",), {"advisory"}), ((), {"advisory", "race"})):
            findings = found(code, block=8, launches=2, assumptions=("warp_128",), later=later)
            assert {one.severity for one in findings} == severities

    @pytest.mark.parametrize("seen", ["%r4", "%r5"])
    def test_of_two_lines_only_the_one_whose_flag_is_seen_is_explained(self, seen):
        """Two lines are loaded in each turn of a poll that looks at the second one's flag, or at that of the first."""
        two = ("ld.relaxed.sys.global.v2.b64 {%d2, %d3}, [%d1];", "ld.relaxed.sys.global.v2.b64 {%d4, %d5}, [%d1+256];")
        writer = self.AT_LANE.format("%peer") + self.STORE_LINE + self.STORE_LINE.replace("%d1", "%d1+256")
        reader = self.AT_LANE.format("%data") + "SPIN: " + "".join(two)
        reader += f"cvt.u32.u64 %r4, %d3; cvt.u32.u64 %r5, %d5; setp.eq.u32 %p2, {seen}, 0; @%p2 bra SPIN;"
        about = found([writer, reader], block=8, assumptions=("warp_128",))
        by_line = {one.second.text: one.severity for one in about}
        first, second = ("advisory", "race") if seen == "%r4" else ("race", "advisory")
        assert by_line == {text.removesuffix(";"): kind for text, kind in zip(two, (first, second), strict=True)}

    def test_a_read_that_comes_first_and_cannot_poll_is_not_explained(self):
        """A weak one: the strong store is of no use to it."""
        reader = self.AT_LANE.format("%data") + "ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%d1];"
        writer = self.AT_LANE.format("%peer") + self.SLOWLY + self.STORE_LINE.replace("st.", "st.relaxed.sys.")
        findings = found([writer, reader], block=8, assumptions=("warp_128",))
        assert {(one.severity, one.assumption) for one in findings} == {("race", "")}


OWN = "mul.wide.u32 %d1, %r9, 4; add.u64 %d1, %data, %d1; st.global.b32 [%d1], %r1;"
"""Each thread stores to its word; and it loads the word of another, which %r8 tells."""
OF = "{} mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; ld.global.b32 %r3, [%d1];"


@pytest.mark.parametrize(
    ("sync", "is_clean"), [("bar.sync 0;", True), ("bar.sync 1, 64;", True), ("bar.warp.sync -1;", False), ("", False)]
)
def test_threads_of_a_block_meet(sync, is_clean):
    body = OWN + sync + OF.format("xor.b32 %r8, %r9, {};")
    assert missing(found([body.format(32)], block=64)) == (set() if is_clean else BARRIER)
    assert missing(found([body.format(1)], block=64)) == (set() if sync else BARRIER)


WARP_MEETS = "bar.warp.sync -1;"
ONE_LANE = "setp.ne.u32 %p5, %r9, 0; @%p5 bra DONE;"


@pytest.mark.parametrize(
    ("told", "count"),
    [
        (WARP_MEETS + ONE_LANE + RELEASE, 0),
        (WARP_MEETS + ONE_LANE + FENCE + RELAXED, 0),
        (WARP_MEETS + ONE_LANE + "red.release.sys.global.add.u32 [%peerflag], %r1;", 0),
        (ONE_LANE + RELEASE, 31),
        (FENCE + WARP_MEETS + ONE_LANE + RELAXED, 31),
        ("@!%p5 bar.warp.sync 1;" + ONE_LANE + RELEASE, 31),
    ],
)
def test_a_lane_releases_what_its_warp_knows(told, count):
    """A warp stores, meets, and one of its lanes releases. A fence before they meet is each lane's own. A warp that has
    met hands on its own stores, not those of the other warp."""
    writer = f"setp.ne.u32 %p5, %r9, 0; mul.wide.u32 %d1, %r9, 4; add.u64 %d1, %peer, %d1; st.global.b32 [%d1], %r1; {told} DONE:"
    reads = " ".join(f"ld.global.b32 %r3, [%data+{4 * at}];" for at in range(32))
    reader = f"{ONE_LANE.replace('DONE', 'LAST')} {poll()} {reads} LAST:"
    assert sum(one.count for one in about_data(writer, reader, block=32)) == count
    assert len(about_data(writer, reader.replace("[%data+", "[%data+128+"), block=64)) == 32


@pytest.mark.parametrize(("sync", "is_clean"), [(WARP_MEETS, True), ("", False)])
def test_a_lane_arrives_at_an_mbarrier_for_its_warp(sync, is_clean):
    """Warp 1 uses shared memory and meets; its first lane arrives. Warp 0 waits, then writes to the same words."""
    body = f"""mov.u32 %r7, barrier; mov.u32 %r6, buffer; and.b32 %r8, %r9, 31; shl.b32 %r4, %r8, 2;
        add.u32 %r6, %r6, %r4; setp.ne.u32 %p3, %r9, 0; @%p3 bra JOIN; mbarrier.init.shared.b64 [%r7], 1;
        JOIN: bar.sync 0; setp.lt.u32 %p3, %r9, 32; @%p3 bra WAIT;
        st.shared.b32 [%r6], %r1; ld.shared.b32 %r3, [%r6]; {sync} setp.ne.u32 %p4, %r8, 0; @%p4 bra DONE;
        mbarrier.arrive.shared.b64 _, [%r7]; bra DONE;
        WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r7], 0; @!%p4 bra WAIT; st.shared.b32 [%r6], %r1; DONE:"""
    declared = ".shared .align 16 .b8 buffer[256];\n.shared .align 8 .b64 barrier;"
    assert missing(found([body], block=64, before=declared)) == (set() if is_clean else BARRIER)


@pytest.mark.parametrize(("sync", "is_clean"), [("bar.sync 0;", True), ("", False)])
def test_shared_memory(sync, is_clean):
    body = f"mov.u32 %r7, buffer; mul.lo.u32 %r8, %r9, 4; add.u32 %r8, %r8, %r7; st.shared.b32 [%r8], %r1; {sync} xor.b32 %r8, %r9, 33; mul.lo.u32 %r8, %r8, 4; add.u32 %r8, %r8, %r7; ld.shared.b32 %r3, [%r8];"
    declared = ".shared .align 16 .b8 buffer[256];"
    assert missing(found([body], block=64, before=declared)) == (set() if is_clean else BARRIER)


def test_bytes_of_a_word_are_apart():
    body = "cvt.u64.u32 %d1, %r9; add.u64 %d1, %data, %d1; cvt.u16.u32 %h1, %r9; st.global.b8 [%d1], %h1;"
    assert not found([body], block=64)


def test_lanes_that_store_different_values_to_one_address():
    assert not found(["st.global.b32 [%data], %r1;"], block=32)
    (one,) = found(["st.global.b32 [%data], %r9;"], block=32)
    assert one.first.line == one.second.line
    assert one.first.thread != one.second.thread


def test_a_read_modify_write_releases_what_it_acquires():
    """Rank 1's atomic operation acquires with system scope; its block's second warp has the value with scope gpu."""
    body = """setp.ge.u32 %p3, %r9, 32; @%p3 bra SECOND;
        FIRST: atom.acq_rel.sys.global.cas.b32 %r2, [%flag], 1, 2; setp.ne.u32 %p2, %r2, 1; @%p2 bra FIRST; ret;
        SECOND: setp.ne.u32 %p3, %r9, 32; @%p3 ret;
        SPIN: ld.acquire.gpu.global.b32 %r2, [%flag]; setp.ne.u32 %p2, %r2, 2; @%p2 bra SPIN; ld.global.b32 %r3, [%data];"""
    one_thread = "setp.ne.u32 %p3, %r9, 0; @%p3 ret;"
    first = "setp.ne.u32 %p4, %r9, 0; @%p4 bra SECOND;"
    add = "red.release.sys.global.add.u32 [%peerflag], %r1;"
    assert not about_data(one_thread + STORE + add, first + body, block=64)
    assert about_data(one_thread + STORE + add, first + body.replace("acq_rel", "relaxed"), block=64)


COUNTS = {
    "one instruction": "atom.acq_rel.gpu.global.add.u32 %r2, [%flag], 1;",
    "fences": "fence.acq_rel.gpu; atom.relaxed.gpu.global.add.u32 %r2, [%flag], 1; fence.acq_rel.gpu;",
}


@pytest.mark.parametrize("count", COUNTS.values(), ids=list(COUNTS))
@pytest.mark.parametrize("is_last_read", [True, False])
def test_blocks_that_count_in_one_instruction(is_last_read, count):
    """The block that counts last knows what all blocks stored; every other one does not."""
    body = """mov.u32 %r8, %ctaid.x; mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; st.global.b32 [%d1], %r1;
        COUNT setp.ne.u32 %p2, %r2, LAST; @%p2 ret;
        ld.global.v4.b32 {%r3, %r4, %r5, %r6}, [%data];""".replace("LAST", "3" if is_last_read else "2")
    assert bool(found([body.replace("COUNT", count)], grid=4)) != is_last_read
    unordered = count.replace("acq_rel.gpu.global", "relaxed.gpu.global").replace("fence.acq_rel.gpu;", "")
    assert found([body.replace("COUNT", unordered)], grid=4)


def test_a_write_that_another_took_the_place_of_still_races():
    """A count of scope cta, then one of scope sys by the same block, which another rank polls."""
    add = "red.release.{}.global.add.u32 [%peerflag], %r1;".format
    code = [
        add("cta") + "atom.relaxed.sys.global.add.u32 %r2, [%peerflag], 1;",
        poll("relaxed.sys").replace("eq.u32 %p2, %r2, 0", "lt.u32 %p2, %r2, 2"),
    ]
    assert {(one.severity, one.missing) for one in found(code)} == {("race", "a wider scope")}
    assert not found([code[0].replace("cta", "sys"), code[1]])


@pytest.mark.parametrize(("scope", "is_clean"), [("cta", False), ("gpu", True)])
def test_atomics_of_blocks_in_one_instruction(scope, is_clean):
    assert bool(found([f"atom.relaxed.{scope}.global.add.u32 %r2, [%flag], 1;"], grid=2)) != is_clean


@pytest.mark.parametrize("wait", ["", "wait"])
def test_writes_after_reads_of_the_launch_before(wait):
    """Rank 1 reads rank 0's data; rank 0 writes them in the next launch. Only an end barrier holds it back."""
    told, waits = ("st.release.sys.global.b32 [%peerflag+4], %r1;", "SPIN: ld.acquire.sys.global.b32 %r2, [%flag+4]; setp.eq.u32 %p2, %r2, 0; @%p2 bra SPIN;") if wait else ("", "")  # fmt: skip
    code = ["st.global.b32 [%data], %r1;" + waits, "ld.global.b32 %r3, [%peer];" + told]
    findings = found(code, launches=2, is_apart=False)
    reused = [one for one in findings if one.first.rank == 1 and one.second.rank == 0]
    assert bool(reused) != bool(wait)


class TestProxies:
    REDUCE = "multimem.ld_reduce.weak.global.add.u32 %r3, [%all];"

    @pytest.mark.parametrize(
        ("writer", "reader", "expected"),
        [
            ("fence.proxy.alias;" + RELEASE, "", set()),
            (RELEASE, "fence.proxy.alias;", set()),
            (RELEASE, "", {("proxy", "fence.proxy.alias")}),
            (RELAXED, "", {("race", "a release")}),
        ],
    )
    def test_alias(self, writer, reader, expected):
        """Rank 0 writes its own data; rank 1 reads them through the switch."""
        code = [f"st.global.b32 [%data], %r1; {writer}", f"{poll()} {reader} {self.REDUCE}"]
        assert missing(found(code)) == expected

    @pytest.mark.parametrize(("sync", "readers"), [("bar.sync 0;", (0, 1, 32)), (WARP_MEETS, (0, 1)), ("", (0,))])
    def test_a_fence_is_about_what_its_own_warp_knows(self, sync, readers):
        """All lanes of two warps fence in one instruction; one of them reads what lane 0 stored."""
        for reader in (0, 1, 32):
            body = f"{OWN} {sync} fence.proxy.alias; setp.ne.u32 %p3, %r9, {reader}; @%p3 ret; {self.REDUCE}"
            assert bool(found([body], block=64)) != (reader in readers)

    def test_a_read_that_bypasses_l1_after_a_relaxed_poll_is_formal(self):
        code = [f"multimem.st.weak.global.b32 [%all], %r1; {RELEASE}", f"{poll('relaxed.sys')} {self.REDUCE}"]
        assert missing(found(code)) == {("formal", "an acquire")}

    SHARED = ".shared .align 16 .b8 buffer[64];\n.shared .align 8 .b64 barrier;"
    COPY = "cp.async.bulk.global.shared::cta.bulk_group [%data], [%r6], 16; cp.async.bulk.commit_group;"

    @pytest.mark.parametrize("grid", [1, 3])
    def test_a_fence_of_the_thread_that_stored_is_enough(self, grid):
        """Thread 5 of a block stores and fences, thread 0 copies behind a barrier."""
        for fence, expected in (("fence.proxy.async;", set()), ("", ASYNC)):
            body = f"""mov.u32 %r6, buffer; setp.ne.u32 %p3, %r9, 5; @%p3 bra MEET;
                st.shared.v4.b32 [%r6], {{%r1, %r1, %r1, %r1}}; {fence} MEET: bar.sync 0;
                setp.ne.u32 %p3, %r9, 0; @%p3 ret; mul.wide.u32 %d1, %block, 16; add.u64 %d1, %data, %d1;
                {self.COPY.replace("%data", "%d1")} cp.async.bulk.wait_group 0;"""
            assert missing(found([body], grid=grid, block=64, before=self.SHARED)) == expected

    LOADED = """mov.u32 %r6, buffer; mov.u32 %r7, barrier; setp.ne.u32 %p3, %r9, 0; @%p3 bra JOIN;
        mbarrier.init.shared.b64 [%r7], 1; fence.proxy.async; mbarrier.arrive.expect_tx.shared.b64 _, [%r7], 16;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%data], 16, [%r7];
        JOIN: bar.sync 0;"""
    WAIT = "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r7], 0; @!%p4 bra WAIT;"

    @pytest.mark.parametrize("waits", [True, False])
    def test_mbarriers(self, waits):
        """Each thread that waited may read what the copy wrote; without a wait no thread may overwrite the source."""
        used = "ld.shared.b32 %r3, [%r6];" if waits else ""
        body = f"{self.LOADED} {self.WAIT if waits else ''} {used} @%p3 ret; st.global.b32 [%data], %r1;"
        if not waits:
            body += self.WAIT  # the block must outlive the copy
        assert bool(found([body], block=64, before=self.SHARED)) != waits

    MADE = """mov.u32 %r6, buffer; mov.u32 %r7, barrier; mov.u32 %r8, ready; setp.ne.u32 %p3, %r9, 0; @%p3 bra JOIN;
        mbarrier.init.shared.b64 [%r7], 1; {fence} st.volatile.shared.b32 [%r8], 1;
        JOIN: {sync} setp.ne.u32 %p4, %r9, 32; @%p4 ret; {last}
        mbarrier.arrive.expect_tx.shared.b64 _, [%r7], 16;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%data], 16, [%r7];"""
    SEEN = "SEE: ld.volatile.shared.b32 %r3, [%r8]; setp.ne.u32 %p4, %r3, 1; @%p4 bra SEE;"

    @pytest.mark.parametrize(
        ("fence", "sync", "last", "expected"),
        [
            ("", "bar.sync 0;", "", ASYNC),
            ("", SEEN, "", {("race", "a barrier")}),
            ("fence.proxy.async.shared::cta;", "bar.sync 0;", "", set()),
            ("fence.mbarrier_init.release.cluster;", "bar.sync 0;", "", set()),
            ("", "bar.sync 0;", "fence.proxy.async;", set()),
            ("fence.proxy.alias;", "bar.sync 0;", "fence.proxy.alias;", ASYNC),
        ],
    )
    def test_a_copy_counts_on_an_mbarrier_that_another_thread_made(self, fence, sync, last, expected):
        """Copies count their bytes in the async proxy, and mbarrier.init is a generic write."""
        code = f"{self.MADE.format(fence=fence, sync=sync, last=last)} {self.WAIT}"
        before = f"{self.SHARED}\n.shared .align 4 .b32 ready;"
        assert missing(found([code], block=64, before=before)) == expected

    @pytest.mark.parametrize("made", ["mbarrier.init.shared.b64 [%r7], 1; fence.proxy.async;", ""])
    def test_an_mbarrier_that_is_made_again_is_announced_again(self, made):
        again = f"""{self.WAIT} mbarrier.inval.shared.b64 [%r7]; {made or "mbarrier.init.shared.b64 [%r7], 1;"}
            mbarrier.arrive.expect_tx.shared.b64 _, [%r7], 16;
            cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r6], [%data], 16, [%r7];"""
        code = f"{self.LOADED} {again} {self.WAIT.replace('WAIT', 'MORE')}"
        findings = found([code], before=self.SHARED)
        assert missing(findings) == (set() if made else ASYNC)

    @pytest.mark.parametrize(
        ("wait", "is_clean"),
        [("cp.async.wait_group 0;", True), ("cp.async.wait_all;", True), ("cp.async.wait_group 1;", False)],
    )
    def test_cp_async(self, wait, is_clean):
        """The source is overwritten: only after the copy was waited for."""
        body = f"mov.u32 %r6, buffer; cp.async.ca.shared.global [%r6], [%data], 16; cp.async.commit_group; {wait} st.global.b32 [%data], %r1;"
        assert bool(found([body], before=self.SHARED)) != is_clean


@pytest.mark.parametrize("schedule", ["random", "priority"])
def test_copies_that_are_written_in_parts_belong_to_those_lanes_that_waited(schedule):
    copy = "cp.async.ca.shared.global [%r6], [%data], 16; cp.async.commit_group; cp.async.wait_group 0; bar.sync 0;"
    body = f"mov.u32 %r6, buffer; mad.lo.u32 %r6, %r9, 16, %r6; {copy} {copy}"
    before = ".shared .align 16 .b8 buffer[2048];"
    for seed in range(8):
        assert not found(body, grid=2, block=128, before=before, schedule=schedule, seed=seed)


@pytest.mark.parametrize(("sizes", "size"), [("4", 4), ("16", 16), ("16, 12", 12)])
def test_cp_async_reads_its_bytes_and_no_others(sizes, size):
    for at, is_race in ((-1, False), (0, True), (size - 1, True), (size, False)):
        body = f"""mov.u32 %r6, buffer; cvt.u16.u32 %h1, %r9; cp.async.ca.shared.global [%r6], [%data+64], {sizes};
            st.global.b8 [%data+{64 + at}], %h1; cp.async.wait_all;"""
        assert bool(found([body], before=TestProxies.SHARED)) is is_race, at


@pytest.mark.parametrize(
    ("arrive", "count", "is_clean"),
    [
        ("cp.async.mbarrier.arrive.shared.b64 [%r7]; mbarrier.arrive.shared.b64 _, [%r7];", 64, True),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r7];", 64, True),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r7]; mbarrier.arrive.shared.b64 _, [%r7];", 128, True),
        ("mbarrier.arrive.shared.b64 _, [%r7];", 64, False),
    ],
)
def test_copies_arrive_at_an_mbarrier(arrive, count, is_clean):
    """Each lane copies 16 bytes and reads those of its neighbour: only if the phase waits for the copies."""
    body = f"""mov.u32 %r7, barrier; mov.u32 %r6, buffer; shl.b32 %r8, %r9, 4; add.u32 %r5, %r6, %r8;
        st.shared.v4.b32 [%r5], {{%r1, %r1, %r1, %r1}}; setp.ne.u32 %p3, %r9, 0; @%p3 bra JOIN;
        mbarrier.init.shared.b64 [%r7], {count};
        JOIN: bar.sync 0; cvt.u64.u32 %d1, %r8; add.u64 %d1, %data, %d1;
        cp.async.cg.shared.global [%r5], [%d1], 16; {arrive}
        WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [%r7], 0; @!%p4 bra WAIT;
        xor.b32 %r8, %r8, 16; add.u32 %r5, %r6, %r8; ld.shared.b32 %r3, [%r5]; cp.async.wait_all;"""
    declared = ".shared .align 16 .b8 buffer[1024];\n.shared .align 8 .b64 barrier;"
    assert bool(found([body], block=64, before=declared)) != is_clean


RELAXED_ARRIVALS = [
    ("fence.acq_rel.cluster; barrier.cluster.arrive.relaxed;", 0),
    ("fence.acq_rel.gpu; barrier.cluster.arrive.relaxed;", 0),
    ("@%p4 bra ON; fence.acq_rel.cluster; ON: barrier.cluster.arrive.relaxed;", 32),
    ("fence.acq_rel.cta; barrier.cluster.arrive.relaxed;", 64),
    ("barrier.cluster.arrive.relaxed;", 64),
    ("barrier.cluster.arrive.relaxed; fence.acq_rel.cluster;", 64),
]


@pytest.mark.parametrize(("arrive", "count"), RELAXED_ARRIVALS)
def test_relaxed_arrivals_at_a_cluster(arrive, count):
    """Threads of two blocks exchange words; a relaxed arrival hands on what the thread's own fence before it released.
    Each pair counts once, by the read or the write that comes second. p4: every other thread."""
    body = f"""mov.u32 %r8, %ctaid.x; mad.lo.u32 %r8, %r8, 32, %r9; and.b32 %r4, %r9, 1; setp.eq.u32 %p4, %r4, 1;
        mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; st.global.b32 [%d1], %r1; {arrive} barrier.cluster.wait;
        xor.b32 %r8, %r8, 32; mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; ld.global.b32 %r3, [%d1];"""
    findings = found([body], grid=2, block=32, cluster=2)
    assert sum(one.count for one in findings) == count


def test_a_fence_hands_on_only_what_came_before_it():
    """The store between the fence and the relaxed arrival is not released."""
    body = """mov.u32 %r8, %ctaid.x; mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; st.global.b32 [%d1], %r1;
        fence.acq_rel.cluster; st.global.b32 [%d1+16], %r1; barrier.cluster.arrive.relaxed; barrier.cluster.wait;
        xor.b32 %r8, %r8, 1; mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %data, %d1; ld.global.b32 %r3, [%d1+OFFSET];"""
    assert not found([body.replace("OFFSET", "0")], grid=2, cluster=2)
    assert missing(found([body.replace("OFFSET", "16")], grid=2, cluster=2)) == {("race", "a barrier")}


def test_nothing_is_found_by_a_world_that_does_not_look():
    world = make_world(1)
    assert world.races is None
    assert world.findings == ()
