"""What orders launches on several streams of a rank under the race checker, and what a finding says of them."""

import random

import numpy as np
import pytest
import torch

from simulator.happens_before.clocks import BLOCK_SHIFT, COPY_CODE, HOST_CODE, RANK_SHIFT, Clocks
from tests.golden import same_text
from tests.simulator.harness import executable, make_world, module, put, start, succeed

PARAMETERS = ["u64 data", "u64 peer", "u32 from"]
STORE = "mov.u32 %r1, 5; st.global.b32 [%data], %r1;"
LOAD = "ld.global.b32 %r1, [%data];"
NOTHING = "mov.u32 %r1, 0;"
SIGNAL = STORE + "st.release.{scope}.global.b32 [%data+64], %r1;"
POLL = "SPIN: ld.{order}.global.b32 %r2, [%data+64]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPIN;" + LOAD
BUFFER = ".shared .align 16 .b8 buffer[16];"
COPY = """mov.u32 %r6, buffer; st.shared.v4.b32 [%r6], {%r6, %r6, %r6, %r6}; fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%data], [%r6], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
PART = """add.u32 %r1, %from, %block; mul.wide.u32 %d1, %r1, 4; add.u64 %d1, %data, %d1; st.global.b32 [%d1], %r1;"""


class Rank:
    """A rank's host that launches kernels on `data`, by their PTX."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.data = put(fabric, "data", np.zeros(256, np.uint32))
        self.peer = fabric.peer_address(self.data, (fabric.rank + 1) % fabric.world_size)
        fabric.barrier()

    def launch(self, body, stream, grid=1, since=0, **how):
        kernel = executable(module(body, PARAMETERS, BUFFER if "buffer" in body else ""))
        start(self.fabric, kernel, grid, 1, [self.data.address, self.peer, since], stream=stream, **how)

    def advance(self):
        """Let all kernels run to their ends, of which this host learns nothing."""
        self.fabric.barrier()
        self.fabric.pause(0)


def found(host, ranks=1, **options):
    """What is found when each rank's host does this, and waits for all."""
    world = make_world(ranks, races=True, **options)

    def program(fabric):
        rank = Rank(fabric)
        host(rank)
        fabric.synchronize()
        fabric.barrier()

    succeed(world, program)
    return world.findings


def two(first, second, streams=(1, 2)):
    """A host that launches two kernels on two streams."""

    def host(rank):
        rank.launch(first, streams[0])
        rank.launch(second, streams[1])

    return host


ACCESSES = {"store": "mov.u32 %r1, 5; st.global.b32 [%{}], %r1;", "load": "ld.global.b32 %r1, [%{}];"}


def drawn(seed):
    """What each of two hosts does until they meet, and until they meet again."""
    draw = random.Random(seed)

    def step():
        kind = draw.choice(("launch",) * 5 + ("wait", "wait", "synchronize", "pause", "read", "write"))
        if kind == "launch":
            return kind, draw.choice((None, 1, 2, 3)), draw.choice(("store", "load")), draw.choice(("data", "peer"))
        return kind, *draw.sample((1, 2, 3), 2)

    return [[[step() for _ in range(draw.randrange(5))] for _ in range(2)] for _ in range(2)]


def carried_out(rank, phases):
    for phase in phases:
        for kind, *how in phase[rank.fabric.rank]:
            if kind == "launch":
                rank.launch(ACCESSES[how[1]].format(how[2]), how[0])
            elif kind == "wait":
                rank.fabric.wait_stream(*how)
            elif kind == "synchronize":
                rank.fabric.synchronize()
            elif kind == "pause":
                rank.fabric.pause(0)
            elif kind == "read":
                rank.fabric.read(rank.data, 0, 4)
            else:
                rank.fabric.write(rank.data, 0, torch.ones(4, dtype=torch.uint8))
        rank.fabric.barrier()


def unordered(phases):
    """Pairs of accesses that race, by rank and number of the launch, -1 for hosts: what each host and the end of each
    stream know are sets of accesses. A launch knows what its host does, and adds itself to its stream."""
    accesses, known, ends, launches = [], [set(), set()], [{}, {}], [0, 0]
    for phase in phases:
        for rank, steps in enumerate(phase):
            for kind, *how in steps:
                if kind in ("synchronize", "read", "write"):
                    known[rank].update(*ends[rank].values())
                if kind == "wait":
                    ends[rank].setdefault(how[0], set()).update(ends[rank].get(how[1], ()))
                if kind in ("launch", "read", "write"):
                    knows = ends[rank].setdefault(how[0], set()) if kind == "launch" else known[rank]
                    knows |= known[rank]
                    owner = rank ^ (kind == "launch" and how[2] == "peer")
                    name = (rank, launches[rank] if kind == "launch" else -1)
                    accesses.append((owner, kind == "write" or how[1] == "store", frozenset(knows), name))
                    knows.add(len(accesses) - 1)
                    launches[rank] += kind == "launch"
        known = [known[0] | known[1] for _ in range(2)]
    return {
        frozenset({one[3], other[3]})
        for at, one in enumerate(accesses)
        for before, other in enumerate(accesses[:at])
        if one[0] == other[0] and (one[1] or other[1]) and before not in one[2]
    }


@pytest.mark.parametrize("seeds", [range(first, first + 20) for first in range(0, 200, 20)], ids=str)
def test_launches_and_hosts_are_ordered_by_streams_waits_and_meetings(seeds):
    """The page's order, as sets: streams, waits for streams, hosts that wait, and hosts that meet."""
    for seed in seeds:
        phases = drawn(seed)
        findings = found(lambda rank, phases=phases: carried_out(rank, phases), 2)
        pairs = {frozenset((side.rank, side.launch) for side in (one.first, one.second)) for one in findings}
        assert pairs <= unordered(phases), seed
        assert bool(pairs) == bool(unordered(phases)), seed
        for one in findings:
            is_of_streams = one.missing == "an event between the streams"
            assert is_of_streams == (one.first.rank == one.second.rank), seed


@pytest.mark.parametrize(
    ("scope", "order", "missing"),
    [
        ("gpu", "acquire.gpu", ""),
        ("sys", "acquire.sys", ""),
        ("gpu", "relaxed.gpu", "an acquire"),
        ("cta", "acquire.gpu", "a wider scope"),
    ],
)
def test_flags_order_kernels_of_two_streams(scope, order, missing):
    findings = found(two(SIGNAL.format(scope=scope), POLL.format(order=order)))
    assert {one.missing for one in findings} == ({missing} if missing else set())


class TestRooms:
    """Blocks of launches that may run side by side have clocks of their own."""

    def test_the_end_of_a_stream_says_nothing_of_another_s_copies(self):
        """A bulk copy of stream 1 is done; the next launches of stream 2 do not know it, with an event they do."""
        for has_event in (False, True):

            def host(rank, has_event=has_event):
                rank.launch(NOTHING, 2)
                rank.launch(COPY, 1)
                if has_event:
                    rank.fabric.wait_stream(2, 1)
                else:
                    rank.launch(NOTHING, 2)
                    rank.advance()
                rank.launch(LOAD, 2)

            assert [(one.first.launch, one.second.launch) for one in found(host)] == ([] if has_event else [(1, 3)])

    def test_larger_grids_on_two_streams(self):
        """Each launch stores words of its own; a last one of stream 1 stores again what stream 2 did, and 1 did."""

        def host(rank):
            since = 0
            for stream, grid in ((1, 2), (2, 5), (1, 9), (2, 3), (2, 20), (3, 4)):
                rank.launch(PART, stream, grid=grid, since=since)
                since += grid
                rank.advance()
            rank.launch(PART, 1, grid=since)

        findings = found(host)
        assert {one.second.launch for one in findings} == {6}
        assert {one.first.stream for one in findings} <= {2, 3}
        assert {one.first.element // 4 for one in findings} <= {*range(2, 7), *range(16, 43)}
        assert sum(one.count for one in findings) == 5 + 3 + 20 + 4
        assert {one.first.block for one in findings} <= set(range(20))

    def test_new_streams_take_the_rooms_of_those_that_were_waited_for(self):
        world = make_world(1, races=True)

        def program(fabric):
            rank = Rank(fabric)
            for stream in range(10):
                rank.launch(PART, stream, grid=1 + stream % 3)
                rank.launch(NOTHING, stream + 100)
                fabric.synchronize()

        succeed(world, program)
        assert world.findings == ()
        assert len(world.races.order.clocks.rooms) <= 3

    def test_clusters_of_the_second_stream(self):
        """A flag of scope cluster orders blocks of one cluster, and not those of two, beside another stream."""
        body = """
            setp.ne.u32 %p1, %block, {first}; @%p1 bra LOAD;
            add.u64 %d1, %data, 32; mov.u32 %r1, 1; st.global.b32 [%d1], %r1;
            st.release.cluster.global.b32 [%data+64], %r1; ret;
            LOAD: setp.ne.u32 %p1, %block, {second}; @%p1 ret;
            SPIN: ld.acquire.cluster.global.b32 %r2, [%data+64]; setp.eq.u32 %p1, %r2, 0; @%p1 bra SPIN;
            add.u64 %d1, %data, 32; ld.global.b32 %r1, [%d1];
        """

        def host(first, second):
            def launches(rank):
                rank.launch(NOTHING, 1, grid=3)
                rank.launch(body.format(first=first, second=second), 2, grid=4, cluster=2)

            return launches

        assert found(host(0, 1)) == ()
        assert found(host(2, 3)) == ()
        assert {one.severity for one in found(host(1, 2))} == {"race"}

    def test_slots(self):
        clocks = Clocks(2)
        clocks.fit(3, False)
        row = int(clocks.new(1)[0])
        clocks.rows[row, 0] = np.arange(8)  # of rank 0 three blocks and its host, then of rank 1
        clocks.fit(2, False, 1)
        host, copy = HOST_CODE, COPY_CODE
        pairs = ((0, 0), (2, 9), (3, 0), (4, copy), (0, copy), (2, copy), ((1 << 18) - 1, host))
        actors = np.array([1 << RANK_SHIFT | block << BLOCK_SHIFT | code for block, code in pairs])
        assert clocks.rows[row, 0, clocks.slots_of(actors)].tolist() == [4, 6, 7, 7, 7, 7, 7]
        clocks.know(row, 1, 50, without=[0])
        assert clocks.rows[row, 0].tolist() == [0, 1, 2, 3, 3, 3, 3, 3, 4, 5, 6, 50, 50, 7, 50, 50]
        clocks.fit(4, True, 1)
        assert clocks.rows[row, 2].tolist() == [0, 1, 2, 3, 3, 3, 3, 3, 3, 3, 4, 5, 6, 50, 50, 50, 50, 7, 50, 50]


class TestSentences:
    def test_a_finding_names_launches_and_streams(self):
        (one,) = found(two(STORE, LOAD, streams=(None, 4)))
        same_text(one.sentence())

    def test_a_pair_within_a_launch_and_one_of_two_streams_are_two_findings(self):
        """Two blocks store at one place, and so does a launch of the same kernel on another stream."""
        findings = found(lambda rank: (rank.launch(STORE, 1, grid=2), rank.launch(STORE, 2, grid=2)))
        assert {one.first.stream == one.second.stream for one in findings} == {True, False}
        assert {one.missing for one in findings} == {"a barrier", "an event between the streams"}
