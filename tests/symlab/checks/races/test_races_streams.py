"""What orders launches on several streams of a rank under the race checker, and what a finding says of them."""

import numpy as np
import pytest

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


def two(first, second, between=lambda rank: None, streams=(1, 2)):
    """A host that launches two kernels on two streams, and does something between."""

    def host(rank):
        rank.launch(first, streams[0])
        between(rank)
        rank.launch(second, streams[1])

    return host


class TestOrder:
    @pytest.mark.parametrize("streams", [(1, 2), (None, 1), (7, None)])
    @pytest.mark.parametrize("bodies", [(STORE, LOAD), (LOAD, STORE), (STORE, STORE)])
    def test_two_streams_are_not_ordered(self, bodies, streams):
        """The same block and thread of both launches are different threads."""
        (one,) = found(two(*bodies, streams=streams))
        assert (one.severity, one.missing) == ("race", "an event between the streams")
        assert [(side.launch, side.stream, side.block) for side in (one.first, one.second)] == [
            (0, streams[0], 0),
            (1, streams[1], 0),
        ]

    @pytest.mark.parametrize(
        ("between", "streams", "is_ordered"),
        [
            ("", (1, 1), True),
            ("", (None, None), True),
            ("synchronize", (1, 2), True),
            ("wait 2 1", (1, 2), True),
            ("advance, wait 2 1", (1, 2), True),
            ("wait 2 1, advance", (1, 2), True),
            ("advance, wait 2 1, advance", (1, 2), True),
            ("wait 2 1, launch 2", (1, 2), True),
            ("wait 2 1, wait 3 2", (1, 3), True),
            ("wait 3 2", (1, 3), False),
            ("wait 1 2", (1, 2), False),
            ("advance", (1, 2), False),
        ],
    )
    def test_what_orders_two_launches(self, between, streams, is_ordered):
        """A host that waits, or an event of the first one's stream that the second one's waits for, directly or by way
        of a third, whether the first one is over by then or not. That the first one has ended orders nothing by itself:
        something has to wait for its end."""

        def steps(rank):
            for step in filter(None, between.split(", ")):
                what, *which = step.split()
                if what == "wait":
                    rank.fabric.wait_stream(*map(int, which))
                elif what == "launch":
                    rank.launch(NOTHING, int(which[0]))
                elif what == "advance":
                    rank.advance()
                else:
                    rank.fabric.synchronize()

        assert len(found(two(STORE, LOAD, steps, streams))) == (0 if is_ordered else 1)

    @pytest.mark.parametrize("advances", [False, True])
    def test_an_event_is_of_what_was_launched_before_it(self, advances):
        """The second store is on the stream that was waited for, but behind the event."""

        def between(rank):
            rank.fabric.wait_stream(2, 1)
            rank.launch(STORE, 1)
            if advances:
                rank.advance()

        (one,) = found(two(NOTHING, LOAD, between))
        assert {one.first.launch, one.second.launch} == {1, 2}

    @pytest.mark.parametrize(
        ("scope", "order", "missing"),
        [
            ("gpu", "acquire.gpu", ""),
            ("sys", "acquire.sys", ""),
            ("gpu", "relaxed.gpu", "an acquire"),
            ("cta", "acquire.gpu", "a wider scope"),
        ],
    )
    def test_flags_order_kernels_of_two_streams(self, scope, order, missing):
        findings = found(two(SIGNAL.format(scope=scope), POLL.format(order=order)))
        assert {one.missing for one in findings} == ({missing} if missing else set())

    def test_streams_of_two_ranks_are_apart(self):
        """Odd ranks launch in the other order. Each stream stores at an end of its own in the peer's memory."""

        def host(rank):
            order = (1, 2) if rank.fabric.rank % 2 == 0 else (2, 1)
            for stream in order:
                rank.launch(PART.replace("%data", "%peer"), stream, grid=3, since=64 * stream)

        assert found(host, ranks=2) == ()

    def test_streams_of_two_ranks_that_meet_at_one_place(self):
        findings = found(lambda rank: rank.launch(STORE if rank.fabric.rank else STORE.replace("%data", "%peer"), 1), 2)
        (one,) = findings
        assert {one.first.rank, one.second.rank} == {0, 1}
        assert one.missing != "an event between the streams"

    def test_a_host_orders_what_peers_launch_on_any_stream(self):
        """Rank 0 stores on two streams into its peer, waits, meets it, and the peer reads on another."""

        def host(rank):
            if not rank.fabric.rank:
                rank.launch(PART.replace("%data", "%peer"), 1, grid=2)
                rank.launch(PART.replace("%data", "%peer"), 2, grid=2, since=8)
                rank.fabric.synchronize()
            rank.fabric.barrier()
            if rank.fabric.rank:
                rank.launch(LOAD, 3)

        assert found(host, ranks=2) == ()


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
