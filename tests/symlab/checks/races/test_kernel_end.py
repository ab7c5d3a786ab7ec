"""The assumption kernel_end: what a kernel did is complete before the next one of its stream, and no more than that."""

import pytest
import torch

import symlab

MODULE = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry turns(.param .u64 data, .param .u64 flags, .param .u32 rank, .param .u32 launch)
{
	.reg .pred %p<8>;
	.reg .b32 %r<8>;
	.reg .b64 %rd<8>;
	ld.param.u64 %rd1, [data];
	ld.param.u64 %rd2, [flags];
	ld.param.u32 %r1, [rank];
	ld.param.u32 %r2, [launch];
	ld.global.u64 %rd3, [%rd1+8];		// rank 1's data
	ld.global.u64 %rd4, [%rd2];		// rank 0's flag
	setp.eq.u32 %p1, %r1, 0;
	@%p1 bra zero;
	setp.ne.u32 %p2, %r2, FIRST;
	@!%p2 st.global.u32 [%rd3], 5;
	setp.ne.u32 %p3, %r2, FLAG;
	@!%p3 st.volatile.global.u32 [%rd4], 1;
	ret;
zero:
	setp.ne.u32 %p4, %r2, POLL;
	@%p4 bra polled;
wait:
	ld.volatile.global.u32 %r3, [%rd4];
	setp.ne.u32 %p5, %r3, DECIDES;
	@%p5 bra wait;
polled:
	setp.ne.u32 %p6, %r2, SECOND;
	@%p6 ret;
	ACCESS;
	ret;
}
"""
SEEN = "ld.global.u32 %r4, [%rd3]; st.global.u32 [%rd4+4], %r4"
STORE, LOAD = "st.global.u32 [%rd3], 7", "ld.global.u32 %r4, [%rd3]"


def found(access, *, declared=True, decides="1", schedule="fair", seeds=1, **launches):
    """What the checker finds of rank 1's first store and rank 0's access. launches: in which each thing is done."""
    done = ran(access, decides, launches, declared, schedule=schedule, seeds=seeds, races=True)
    return list(done.findings or ())


def ran(access, decides, launches, declared, **order):
    text = MODULE.replace("ACCESS", access).replace("DECIDES", decides)
    for name, number in launches.items():
        text = text.replace(name.upper(), str(number))
    buffers = {"data": (1, torch.int32, 0), "flags": (2, torch.int32, 0)}
    arguments = [("peers", "data"), ("peers", "flags"), "rank", "launch"]
    how = {"ranks": 2, "grid": 1, "block": 1, "launches": 3, "assumptions": ["kernel_end"] * declared, **order}
    return symlab.simulate(text, buffers=buffers, arguments=arguments, **how)


@pytest.mark.parametrize(
    ("access", "launches"),
    [
        (STORE, {"first": 0, "flag": 1, "poll": 1, "second": 1}),
        (STORE, {"first": 0, "flag": 1, "poll": 1, "second": 2}),
        (LOAD, {"first": 0, "flag": 1, "poll": 1, "second": 2}),
    ],
)
def test_the_end_of_a_kernel_explains_what_came_before_it(access, launches):
    (plain,) = found(access, declared=False, **launches)
    assert (plain.severity, plain.granting) == ("race", "kernel_end")
    (granted,) = found(access, **launches)
    assert (granted.severity, granted.assumption, granted.fails) == ("advisory", "kernel_end", False)


@pytest.mark.parametrize(
    ("access", "launches"),
    [
        (STORE, {"first": 1, "flag": 1, "poll": 1, "second": 1}),  # no kernel ends between store and flag
        (LOAD, {"first": 0, "flag": 1, "poll": 1, "second": 1}),  # a GPU may have read ahead of the poll
        (STORE, {"first": 2, "flag": 1, "poll": 1, "second": 2}),  # the store is in a later launch than the flag
    ],
)
def test_it_explains_nothing_else(access, launches):
    for declared in (False, True):
        (one,) = found(access, declared=declared, **launches)
        assert (one.severity, one.granting, one.assumption) == ("race", None, "")


def test_a_poll_that_waits_for_nothing_explains_nothing():
    """In some orders it sees the flag."""
    launches = {"first": 0, "flag": 1, "poll": 1, "second": 1}
    seen = found(STORE, decides="%r3", schedule="random", seeds=8, **launches)
    assert ("race", "") in {(one.severity, one.assumption) for one in seen}


@pytest.mark.parametrize("declared", [False, True])
def test_weak_memory_shows_what_an_earlier_kernel_stored_where_that_is_declared(declared):
    """Each seed is a run of its own: they end differently without it."""
    launches = {"first": 0, "flag": 1, "poll": 1, "second": 2}
    seen = set()
    for seed in range(12):
        done = ran(SEEN, "1", launches, declared, seeds=[seed], memory="weak")
        seen.add(int(done.outputs["flags"][0][1]))
    assert seen == ({5} if declared else {0, 5})
