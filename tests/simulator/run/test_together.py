"""Instructions that lanes of a warp, or threads of a block, carry out together from several branches.

PTX asks for the same qualifiers and the same mask, not for the same place. Each branch has registers of its own, and the
registers of the other branches hold something else. What comes of them together is what comes of them at one place,
which vectors_warp.py proves.
"""

import functools
import re

import pytest

from tests.golden import same_text
from tests.simulator.harness import failed, in_orders, stored

schedules = in_orders(4)
WORD = 0xFFFFFFFF


def value_of(lane):
    return (lane * 2654435761 + 77) & WORD


MATCH = "and.b32 A, L, 31; rem.u32 A, A, {}; match.{}.sync.b32 {}, A, M;"
MATCH_64 = "and.b32 A, L, 31; rem.u32 A, A, {}; cvt.u64.u32 W, A; shl.b64 W, W, 40; match.{}.sync.b64 {}, W, M;"
FORMS = {
    **{
        f"shfl.{way}": f"shfl.sync.{way}.b32 D|P, A, 5, {31 * (way != 'up')}, M;"
        for way in ("up", "down", "bfly", "idx")
    },
    **{f"vote.{one}": f"mov.u32 D, 0; vote.sync.{one}.pred P, F, M;" for one in ("all", "any", "uni")},
    "vote.ballot": "vote.sync.ballot.b32 D, F, M;",
    **{
        f"match.{one}.b{bits} of {modulus}": text.format(modulus, one, results)
        for one, results in (("any", "D"), ("all", "D|P"))
        for bits, text in ((32, MATCH), (64, MATCH_64))
        for modulus in (1, 5)
    },
    **{f"redux.{one}": f"redux.sync.{one} D, A, M;" for one in ("add.u32", "min.u32", "max.u32", "add.s32", "min.s32")},
    **{f"redux.{one}": f"redux.sync.{one} D, A, M;" for one in ("max.s32", "and.b32", "or.b32", "xor.b32")},
    "elect": "elect.sync D|P, M;",
}
"""With D for the result, P for the predicate, A, L, W and F for what a lane brings, and M for the mask."""


def branches(text, ways, between="\n"):
    """The instruction in several branches, that lanes take by their number; it is on one line if between is " "."""
    parts = [
        "and.b32 %r3, %lane, 31; mul.lo.u32 %r4, %r3, 2654435761; add.u32 %r4, %r4, 77;",
        "mul.lo.u32 %r5, %r3, 7; rem.u32 %r5, %r5, 3; setp.eq.u32 %p1, %r5, 0; mov.u32 %r7, -1; mov.u32 %r2, 0;",
        *(f"mov.u32 %v{way}, {1000 + way}; setp.ne.u32 %f{way}, 0, 0; setp.ne.u32 %q{way}, 0, 0;" for way in range(3)),
        f"rem.u32 %r6, %r3, {ways};" if ways == 3 else "shr.u32 %r6, %r3, 4;",
        *(f"setp.eq.u32 %p{2 + way}, %r6, {way}; @%p{2 + way} bra WAY{way};" for way in range(1, ways)),
    ]
    for way in (0, *range(1, ways)):
        named = {"D": f"%e{way}", "P": f"%q{way}", "A": f"%v{way}", "W": f"%w{way}", "L": "%r3"}
        named |= {"M": "-1" if way == 0 else "%r7", "F": "%p1" if way == 0 else f"!%f{way}"}
        words = re.sub(r"\b[DPAWLMF]\b", lambda found, named=named: named[found[0]], text)
        start = f"WAY{way}: mov.u32 %v{way}, %r4; not.pred %f{way}, %p1;" if way else "mov.u32 %v0, %r4;"
        parts.append(f"{start}{between}{words}{between}selp.u32 %r8, 1, 0, %q{way}; mad.lo.u32 %r2, %e{way}, 2, %r8;")
        parts.append("bra.uni END;")
    return between.join([*parts, "END:"])


REGISTERS = ".reg .b32 %v<3>, %e<3>; .reg .pred %f<3>, %q<3>; .reg .b64 %w<3>;"


together = functools.partial(stored, registers=REGISTERS)


@schedules
@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize("name", FORMS)
def test_branches_of_a_warp_meet(name, ways, options):
    assert together(branches(FORMS[name], ways), **options) == together(branches(FORMS[name], 1))


@pytest.mark.parametrize("name", FORMS)
def test_branches_on_one_line_meet(name):
    assert together(branches(FORMS[name], 2, " ")) == together(branches(FORMS[name], 1))


@schedules
def test_branches_of_a_short_warp_with_lanes_that_returned(options):
    """The last warp has 8 threads; lanes 3 and 20 have returned before the others meet."""
    body = "mov.u32 %r3, %tid.x; and.b32 %r3, %r3, 31; setp.eq.u32 %p9, %r3, 3; @%p9 ret; setp.eq.u32 %p9, %r3, 20; @%p9 ret;"
    body += branches("redux.sync.add.u32 D, A, M;", 3).replace(
        "and.b32 %r3, %lane, 31;", "mov.u32 %r3, %tid.x; and.b32 %r3, %r3, 31;", 1
    )
    expected = []
    for size in (32, 8):
        members = [place for place in range(size) if place not in (3, 20)]
        total = 2 * sum(map(value_of, members)) & WORD
        expected += [total if place in members else 99 for place in range(size)]
    assert together(body, block=40, grid=2, **options) == expected * 2


@schedules
@pytest.mark.parametrize("ways", [2, 3])
@pytest.mark.parametrize("masks", [("-1", "-1"), ("-1", "%r7"), ("%r7", "%r7")])
def test_a_barrier_of_a_warp_from_branches(masks, ways, options):
    """Each lane stores before the barrier, and reads what the lane opposite stored after it."""
    text = "st.shared.u32 [%r9], A; bar.warp.sync N; ld.shared.u32 D, [%r10];"
    before = (
        ".shared .align 4 .b8 box[256];\nmov.u32 %r9, %tid.x; xor.b32 %r10, %r9, 31; shl.b32 %r9, %r9, 2;"
        "shl.b32 %r10, %r10, 2; mov.u32 %r11, box; add.u32 %r9, %r9, %r11; add.u32 %r10, %r10, %r11;\n"
    )
    first, *others = branches(text, ways).split("bar.warp.sync N")
    body = first + "".join(f"bar.warp.sync {masks[min(number, 1)]}{rest}" for number, rest in enumerate(others))
    assert together(before + body, **options) == [2 * value_of(place ^ 31) & WORD for place in range(32)] * 4


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("shfl.sync.up.b32 %r2, %r3, 1, 0, -1;", "shfl.sync.down.b32 %r2, %r3, 1, 31, -1;"),
        ("shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1;", "shfl.sync.idx.b32 %r2, %r3, 1, 31, -1;"),
        ("vote.sync.any.pred %p2, %p1, -1;", "vote.sync.all.pred %p2, %p1, -1;"),
        ("vote.sync.uni.pred %p2, %p1, -1;", "vote.sync.ballot.b32 %r2, %p1, -1;"),
        ("match.any.sync.b32 %r2, %r3, -1;", "match.all.sync.b32 %r2, %r3, -1;"),
        ("match.any.sync.b32 %r2, %r3, -1;", "match.any.sync.b64 %r2, %lane64, -1;"),
        ("redux.sync.add.s32 %r2, %r3, -1;", "redux.sync.add.u32 %r2, %r3, -1;"),
        ("elect.sync %r2|%p2, -1;", "bar.warp.sync -1;"),
        ("shfl.sync.bfly.b32 %r2, %r3, 1, 31, -1;", "vote.sync.ballot.b32 %r2, %p1, -1;"),
        ("redux.sync.add.u32 %r2, %r3, -1;", "redux.sync.add.u32 %r2, %r3, 0x7fffffff;"),
    ],
)
def test_other_qualifiers_and_masks_do_not_meet(first, second):
    said = failed(
        block=32,
        body=f"""
      mov.u32 %r3, %laneid; setp.lt.u32 %p1, %r3, 16; @%p1 bra LOW;
      {first}
      bra.uni END; LOW:
      {second}
      END:
    """,
    )
    assert said.startswith("Deadlock")
    assert all(one.rstrip(";") in said for one in (first, second))


def test_the_report_names_only_lanes_that_came_to_no_branch():
    said = failed(
        block=32,
        body="""
      mov.u32 %r3, %laneid; setp.eq.u32 %p1, %r3, 31; @%p1 bar.sync 0; setp.lt.u32 %p1, %r3, 16; @%p1 bra LOW;
      redux.sync.add.u32 %r2, %r3, -1; bra.uni END; LOW: redux.sync.add.u32 %r2, %r3, -1; END:
    """,
    )
    assert said.count("others wait for lanes [31] at PTX line") == 2


@schedules
@pytest.mark.parametrize("opcode", ["bar", "barrier"])
def test_a_reduction_of_a_block_from_branches(opcode, options):
    """Each branch has a predicate and a destination of its own."""
    body = branches(f"{opcode}.red.popc.u32 D, 1, F;", 2).replace("shr.u32 %r6, %r3, 4;", "shr.u32 %r6, %r0, 5;")
    assert together(body, **options) == [2 * 2 * len(range(0, 32, 3))] * 128


NUMBERED = {
    "sync": ("bar.sync 1, 64; mov.u32 %r2, 7;", 7),
    "sync without aligned": ("barrier.sync 1, 64; mov.u32 %r2, 7;", 7),
    "popc": ("setp.eq.u32 %p1, %r0, %r0; bar.red.popc.u32 %r2, 1, 64, %p1;", 48),
    "and": ("setp.lt.u32 %p1, %r0, 64; bar.red.and.pred %p2, 1, 64, %p1; selp.u32 %r2, 7, 8, %p2;", 7),
}


@schedules
@pytest.mark.parametrize("name", NUMBERED)
def test_a_barrier_counts_a_short_warp_whole(name, options):
    text, expected = NUMBERED[name]
    assert together(text, block=48, **options) == [expected] * 96


@schedules
@pytest.mark.parametrize("name", NUMBERED)
def test_a_barrier_counts_a_warp_whole_of_which_threads_have_returned(name, options):
    text, expected = NUMBERED[name]
    body = f"mov.u32 %r3, %tid.x; setp.lt.u32 %p3, %r3, 16; @%p3 ret; {text}"
    assert together(body, block=64, **options) == ([99] * 16 + [expected] * 48) * 2


@schedules
def test_threads_that_return_late_complete_a_warp(options):
    """The other lanes wait at the barrier already, or come after lanes 0 to 15 have returned."""
    body = """
      mov.u32 %r3, %tid.x; mov.u32 %r4, 40; setp.ge.u32 %p3, %r3, 16; @%p3 bra ON;
      LATE: sub.u32 %r4, %r4, 1; setp.ne.u32 %p4, %r4, 0; @%p4 bra LATE; ret;
      ON: bar.sync 1, 64; mov.u32 %r2, 7;
    """
    assert together(body, **options) == ([99] * 16 + [7] * 48) * 2


@schedules
def test_producers_that_arrive_and_return_count(options):
    body = "setp.ge.u32 %p3, %r0, 32; @%p3 bra ON; bar.arrive 1, 64; ret; ON: bar.sync 1, 64; mov.u32 %r2, 7;"
    assert together(body, **options) == ([99] * 32 + [7] * 32) * 2


@schedules
@pytest.mark.parametrize("block", [48, 64])
def test_a_barrier_of_all_threads_beside_one_of_the_same_number(block, options):
    body = "setp.lt.u32 %p3, %r0, 32; @%p3 bra LOW; bar.sync 0; bra.uni END; LOW: bar.sync 0, 64; END: mov.u32 %r2, 7;"
    assert together(body, block=block, **options) == [7] * 2 * block


def test_a_barrier_of_all_threads_beside_one_of_fewer_is_a_fault():
    said = failed("setp.lt.u32 %p3, %r0, 32; @%p3 bar.sync 0, 64; @!%p3 bar.sync 0;", block=96)
    assert said.startswith("DeviceFault")
    assert "barrier 0 for " in said


def test_a_reduction_beside_a_plain_barrier_is_a_fault():
    said = failed("setp.lt.u32 %p3, %r0, 32; @%p3 bar.sync 1; @!%p3 bar.red.popc.u32 %r2, 1, %p3;", block=64)
    assert said.startswith("DeviceFault")
    same_text(said)


def test_an_incomplete_numbered_barrier_is_named_with_its_threads():
    """A whole warp has come, and a quarter of the other: 40 of 64."""
    same_text(failed("setp.lt.u32 %p3, %r0, 40; @%p3 barrier.sync 1, 64; @!%p3 barrier.sync 2, 64;", block=64))


SPLIT = """
  .shared .align 4 .b8 box[12]; mov.u32 %r9, box;
  setp.eq.u32 %p6, %r0, 0; @%p6 st.shared.u32 [%r9+8], 0; bar.sync 3;
  setp.ge.u32 %p3, %r0, 32; @%p3 bra READ;
  setp.lt.u32 %p4, %r0, 16; @%p4 bra EARLY; mov.u32 %r4, 40;
  LATE: sub.u32 %r4, %r4, 1; setp.ne.u32 %p5, %r4, 0; @%p5 bra LATE; setp.eq.u32 %p6, %r0, 16;
"""
"""Lanes 0 to 15 of warp 0 go ahead to EARLY, lanes 16 to 31 come late, warp 1 goes to READ."""
FLAG = "WAIT: ld.volatile.shared.u32 %r6, [%r9+8]; setp.eq.u32 %p5, %r6, 0; @%p5 bra WAIT;"
"""Wait until warp 1 has set the flag."""


@schedules
def test_half_a_warp_that_arrives_twice_is_not_a_warp(options):
    body = f"""{SPLIT}
      @%p6 st.shared.u32 [%r9], 5; barrier.arrive 1, 64; {FLAG} @%p6 st.shared.u32 [%r9+4], 6; barrier.arrive 1, 64;
      mov.u32 %r2, 7; bra.uni END;
      EARLY: barrier.arrive 1, 64; barrier.arrive 1, 64; mov.u32 %r2, 7; bra.uni END;
      READ: barrier.sync 1, 64; ld.shared.u32 %r2, [%r9]; st.volatile.shared.u32 [%r9+8], 1;
      barrier.sync 1, 64; ld.shared.u32 %r5, [%r9+4];
      mad.lo.u32 %r2, %r2, 10, %r5;
      END:
    """
    assert together(body, **options) == ([7] * 32 + [56] * 32) * 2


@schedules
def test_half_a_warp_that_came_again_waits_for_the_next_time(options):
    body = f"""{SPLIT}
      barrier.arrive 1, 64; {FLAG} barrier.sync 1, 64; ld.shared.u32 %r2, [%r9]; bra.uni END;
      EARLY: barrier.arrive 1, 64; barrier.sync 1, 64; ld.shared.u32 %r2, [%r9]; bra.uni END;
      READ: barrier.sync 1, 64; setp.eq.u32 %p6, %r0, 32; @%p6 st.shared.u32 [%r9], 5;
      st.volatile.shared.u32 [%r9+8], 1; barrier.arrive 1, 64; mov.u32 %r2, 7;
      END:
    """
    assert together(body, **options) == ([5] * 32 + [7] * 32) * 2


@schedules
def test_a_barrier_of_all_threads_needs_no_warp_that_has_returned(options):
    body = "setp.lt.u32 %p3, %r0, 32; @%p3 ret; setp.lt.u32 %p3, %r0, 40; @%p3 ret; bar.sync 3; mov.u32 %r2, 7;"
    assert together(body, block=80, **options) == ([99] * 40 + [7] * 40) * 2
