"""What pairs rightly by chance in fair order, and other findings that name what hides them: without luck, and no more."""

import pytest

from symlab.checks.races.report import NEW_VALUE, WAIT_WRITTEN
from tests.symlab.checks.races.race_programs import found

SEND = "setp.ne.u32 %p1, %lane, 0; @%p1 bra END; st.global.u32 [%peer], %rank;"
POLL = """WAIT: ld.acquire.sys.global.u32 %r2, [%flag]; setp.ne.u32 %p2, %r2, %r1; @%p2 bra WAIT;
    ld.global.u32 %r3, [%data]; st.global.u32 [%flag+128], %r3; END:"""


@pytest.mark.parametrize(("launches", "expected"), [(1, set()), (2, {NEW_VALUE})])
def test_a_store_of_the_value_that_is_there_is_not_waited_for(launches, expected):
    body = f"{SEND} mov.u32 %r1, 1; st.release.sys.global.u32 [%peerflag], %r1; {POLL}"
    assert {one.missing for one in found(body, 1, 32, launches)} == expected


def test_a_value_that_comes_back_after_another_is_waited_for():
    """The reader sets the flag back, and knows it."""
    body = f"{SEND} mov.u32 %r1, 1; st.release.sys.global.u32 [%peerflag], 1; {POLL}"
    assert not found(body.replace("END:", "st.global.u32 [%flag], 0; END:"), launches=2, block=32)


@pytest.mark.parametrize("load", ["volatile", "relaxed.sys"])
def test_a_store_behind_the_own_poll_is_formal(load):
    """A Lamport inbox: data is the flag, and its reader sets it back by a plain store."""
    body = f"""st.volatile.global.u32 [%peer], 7;
        WAIT: ld.{load}.global.u32 %r2, [%data]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT; st.global.u32 [%data], 0;"""
    assert {(one.severity, one.fails) for one in found(body, block=1)} == {("formal", False)}
    other = body.replace("[%data]; setp", "[%data+4]; setp").replace("[%peer], 7", "[%peer+4], 7; \n"
        "st.volatile.global.u32 [%peer], 7")  # fmt: skip
    assert {one.severity for one in found(other, block=1)} == {"race"}, "who polled another word"


@pytest.mark.parametrize("where", ["st.shared.u32 [%r10]", "st.global.u32 [%data]", "st.global.u32 [%data+8]"])
@pytest.mark.parametrize(("value", "is_found"), [("5", False), ("%lane", True), ("%tid.y", False)])
def test_lanes_of_a_warp_that_store_one_value_do_not_race_in_any_order(where, value, is_found):
    """Triton's reductions store so: in random orders the lanes of a warp run one by one, and each pair was a race."""
    body = f"mov.u32 %r10, stage; mov.u32 %r11, {value}; {where}, %r11;"
    for order in ({}, *({"schedule": "random", "granularity": "access", "seed": seed} for seed in range(4))):
        assert bool(found(body, block=32, before=STAGE, **order)) == is_found, order
    between_warps = found(body, block=64, before=STAGE)
    assert between_warps, "of two warps they race, whatever they store"


RELEASE = """st.global.u32 [%peer], 5; {between} setp.ne.u32 %p1, %lane, {lane}; @%p1 bra LOOK;
    st.release.sys.global.u32 [%peerflag], 1; LOOK: setp.ne.u32 %p1, %lane, 0; @%p1 bra END;
    WAIT: ld.acquire.sys.global.u32 %r2, [%flag]; setp.ne.u32 %p2, %r2, 1; @%p2 bra WAIT;
    {then} END:"""
READ, OVERWRITE = "ld.global.u32 %r3, [%data]; st.global.u32 [%flag+128], %r3;", "st.global.u32 [%data], 6;"


@pytest.mark.parametrize("lane", [0, 7, 31])
@pytest.mark.parametrize("then", [READ, OVERWRITE, "ld.relaxed.sys.global.u32 %r3, [%data];"])
@pytest.mark.parametrize(("between", "is_found"), [("", True), ("bar.warp.sync -1;", False), ("bar.sync 0;", False)])
def test_a_lane_releases_its_own_store_alone_whichever_lane_it_is(lane, then, between, is_found):
    """All lanes store one value: of the others', nothing is ordered before the release of one, on converged lanes either
    (PTX ISA, 8.9.5: what one thread does is ordered by synchronization alone)."""
    body = RELEASE.format(lane=lane, between=between, then=then)
    for order in ({}, *({"schedule": "random", "granularity": "access", "seed": seed} for seed in range(2))):
        assert {one.severity for one in found(body, block=32, **order)} == ({"race"} if is_found else set()), order


ROUNDS = """mov.u32 %r11, 0; LOOP: add.u32 %r12, %lane, %r11;
    mul.wide.u32 %d1, %r12, 4; add.u64 %d1, %d1, %data; st.global.u32 [%d1], {value};
    add.u32 %r11, %r11, 1; setp.lt.u32 %p1, %r11, 2; @%p1 bra LOOP;"""


@pytest.mark.parametrize("value", ["5", "%r12"])
def test_stores_of_two_rounds_race_whatever_they_store(value):
    """Each lane stores where the next one stored in the round before, and nothing orders the two."""
    for order in ({}, *({"schedule": "random", "granularity": "access", "seed": seed} for seed in range(4))):
        assert found(ROUNDS.format(value=value), block=32, **order), order


STAGE = ".shared .align 16 .b8 stage[128];"
FILL = "mov.u32 %r10, stage; mad.lo.u32 %r11, %lane, 4, %r10; st.shared.u32 [%r11], %lane;"
COPY = """setp.ne.u32 %p1, %lane, 0; @%p1 bra END;
    cp.async.bulk.global.shared::cta.bulk_group [%peer], [%r10], 128; cp.async.bulk.commit_group;"""


@pytest.mark.parametrize(
    ("before", "after", "is_found"),
    [
        ("fence.proxy.async.shared::cta;", "", False),
        ("", "fence.proxy.async.shared::cta;", True),
        ("setp.eq.u32 %p2, %lane, 5; @!%p2 fence.proxy.async;", "", True),
        ("@%p3 fence.proxy.async;", "fence.proxy.async;", True),
        ("", "", True),
    ],
    ids=["before", "after", "all but one", "none before", "none"],
)
@pytest.mark.parametrize("meet", ["bar.sync 0;", "bar.warp.sync -1;"])
def test_each_thread_of_a_block_fences_for_itself(meet, before, after, is_found):
    body = f"setp.ne.u32 %p3, %lane, %lane; {FILL} {before} {meet} {after} {COPY} cp.async.bulk.wait_group 0; END:"
    findings = {(one.severity, one.missing) for one in found(body, block=32, before=STAGE)}
    assert findings == ({("proxy", "fence.proxy.async")} if is_found else set())


@pytest.mark.parametrize(("wait", "missing"), [("wait_group.read 0", {WAIT_WRITTEN}), ("wait_group 0", set())])
def test_a_wait_for_reads_alone_is_named(wait, missing):
    signal = "st.release.sys.global.u32 [%peerflag], 1; mov.u32 %r1, 1;"
    body = f"{FILL} fence.proxy.async; bar.sync 0; {COPY} cp.async.bulk.{wait}; {signal} {POLL}"
    assert {one.missing for one in found(body, block=32, before=STAGE)} == missing


PACKET = """st.global.{width} [%peer], {values};
    WAIT: ld.volatile.global.{width} {target}, [%data]; setp.eq.u32 %p2, {looked}, 0; @%p2 bra WAIT;"""
PACKETS = {
    "vector_8": PACKET.format(width="v2.u32", values="{%r4, %r5}", target="{%r6, %r7}", looked="%r7"),
    "vector_16": PACKET.format(
        width="v4.u32", values="{%r4, %r4, %r4, %r5}", target="{%r6, %r8, %r9, %r7}", looked="%r7"
    ),
}


@pytest.mark.parametrize("name", PACKETS)
def test_a_race_names_the_assumption_that_would_explain_it(name):
    body = f"mov.u32 %r4, 3; mov.u32 %r5, 1; {PACKETS[name]}"
    (plain,) = found(body, block=1)
    assert (plain.severity, plain.granting) == ("race", name)
    assert f"the assumption '{name}' would explain it" in plain.sentence()
    (granted,) = found(body, block=1, assumptions=(name,))
    assert (granted.severity, granted.assumption, granted.granting) == ("advisory", name, None)


@pytest.mark.parametrize(
    ("add", "poll", "is_race", "is_granted"),
    [
        ("red.global.add", "ld.relaxed.sys", True, True),
        ("atom.relaxed.gpu.global.add", "ld.volatile", True, True),
        ("red.relaxed.sys.global.add", "ld.relaxed.sys", False, False),
        ("red.relaxed.cta.global.add", "ld.relaxed.sys", True, False),
        ("red.global.add", "ld", True, False),
    ],
)
def test_atomics_of_one_gpu_on_another_ones_memory(add, poll, is_race, is_granted):
    target = "%r6, " if add.startswith("atom") else ""
    body = f"""mov.u32 %r4, 3; {add}.u32 {target}[%peer], %r4;
        WAIT: {poll}.global.u32 %r7, [%data]; setp.eq.u32 %p2, %r7, 0; @%p2 bra WAIT;"""
    plain = found(body, block=1)
    assert {one.severity for one in plain} == ({"race"} if is_race else set())
    assert all((one.granting == "gpu_atomics") == is_granted for one in plain)
    granted = found(body, block=1, assumptions=("gpu_atomics",))
    assert any(one.fails for one in granted) == (is_race and not is_granted)


@pytest.mark.parametrize("name", PACKETS)
def test_an_assumption_covers_only_what_was_looked_at(name):
    """A second packet is loaded with the first, and its flag ignored."""
    second = PACKETS[name].replace("[%peer]", "[%peer+64]").replace("[%data]", "[%data+64]")
    ignored = second.replace("WAIT: ", "").partition("setp.eq")[0].replace("%r7", "%r17")
    body = f"mov.u32 %r4, 3; mov.u32 %r5, 1; {PACKETS[name]}"
    assert not any(one.fails for one in found(body + second.replace("WAIT", "AGAIN"), block=1, assumptions=(name,)))
    assert any(one.fails for one in found(body + ignored, block=1, assumptions=(name,)))
