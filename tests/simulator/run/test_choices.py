"""What a schedule chose can be followed again: the same run, event by event, or a part of it and then on."""

from dataclasses import fields

import numpy as np
import pytest

from simulator.memory.chance import Late
from simulator.observe.events import KINDS, Listener
from simulator.run.choices import Began, Moved, Returned, Turn, choices_of, switches, text_of
from tests.golden import refused
from tests.simulator.harness import executable, get, make_world, module, put, run, start

WORK = module(
    """
    // Each rank's threads send vectors to the next rank, wait, add to a sum, shuffle, and copy a part in bulk; block 1
    // ends early.
    .shared .align 128 .b8 buffer[512]; .shared .align 8 .b64 bar;
    setp.ne.u32 %p1, %block, 0; @%p1 bra SIDE;
    mul.wide.u32 %d1, %lane, 8; add.u64 %d2, %peer, %d1; add.u64 %d3, %mine, %d1; mov.u32 %r4, 1;
    st.relaxed.sys.global.v2.b32 [%d2], {%lane, %r4};
    WAIT: ld.relaxed.sys.global.v2.b32 {%r1, %r2}, [%d3]; setp.eq.u32 %p2, %r2, 0; @%p2 bra WAIT;
    red.relaxed.sys.global.add.u32 [%sum], %r1;
    shfl.sync.bfly.b32 %r5, %r1, 3, 31, -1; atom.global.exch.b32 %r6, [%sum+4], %r5;
    shl.b32 %r7, %r0, 3; mov.u32 %r8, buffer; add.u32 %r8, %r8, %r7; st.shared.v2.b32 [%r8], {%r5, %r6};
    fence.proxy.async; bar.sync 0;
    setp.ne.u32 %p3, %r0, 0; @%p3 ret;
    cp.async.bulk.global.shared::cta.bulk_group [%mine+512], [buffer], 512;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;
    SIDE: red.relaxed.sys.global.add.u32 [%sum+8], %lane;
    """,
    ["u64 mine", "u64 peer", "u64 sum"],
)
RANKS = 3
ORDERS = [
    {"schedule": "fair"},
    *({"schedule": "random", "seed": seed, "granularity": "block"} for seed in range(2)),
    *({"schedule": schedule, "seed": seed} for schedule in ("random", "adversarial") for seed in range(9)),
]
WEAK = [
    {"schedule": schedule, "seed": seed, "memory": "weak"}
    for seed, schedule in enumerate(("random", "adversarial") * 2)
]
NAMES = ["-".join(str(one) for one in options.values()) for options in ORDERS]


class Everything(Listener):
    """Notes all events of kernels, as text; those of hosts come in the order of Python's threads."""

    def __init__(self):
        self.lines = []


class Lates(Listener):
    def __init__(self):
        self.told = []

    def late(self, event):
        self.told.append(event)


def _noted(kind):
    def note(self, event):
        values = [
            (one.name, getattr(event, one.name)) for one in fields(event) if one.name not in ("launched", "memory")
        ]
        shown = [(name, value.tolist() if isinstance(value, np.ndarray) else value) for name, value in values]
        self.lines.append(f"{kind} {shown}")

    return note


for _kind in [one for one in KINDS if not one.startswith("host")]:
    setattr(Everything, _kind, _noted(_kind))


def work(fabric):
    """Two launches in a row, on memory of their own."""
    parts = []
    for number in range(2):
        mine = put(fabric, f"mine{number}", np.zeros(256, np.uint32))
        parts.append((mine, put(fabric, f"sum{number}", np.zeros(4, np.uint32))))
    fabric.barrier()
    for mine, total in parts:
        peer = fabric.peer_address(mine, (fabric.rank + 1) % fabric.world_size)
        start(fabric, executable(WORK), 2, 64, [mine.address, peer, total.address])
    fabric.synchronize()
    fabric.barrier()
    return [int(one) for mine, total in parts for region in (mine, total) for one in get(fabric, region, "u4")]


def ran(**options):
    """The events, the choices, and what ranks found or raised."""
    world = make_world(RANKS, records_choices=True, step_budget=20_000, **options)
    everything = Everything()
    world.space.events.add(everything)
    outcome = run(world, work)
    return everything.lines, world.choices, [outcome.results, list(map(repr, outcome.errors))], outcome.counters


@pytest.mark.parametrize("options", [*ORDERS, *WEAK], ids=[*NAMES, *(f"weak-{one['seed']}" for one in WEAK)])
def test_followed_again_they_give_the_same_run_event_by_event(options):
    events, choices, found, counters = ran(**options)
    assert len(choices) > 20
    again, followed, same, counted = ran(**options, follows=choices_of(text_of(choices)))
    assert again == events
    assert text_of(followed) == text_of(choices)
    assert (same, counted) == (found, counters)


@pytest.mark.slow
def test_the_orders_differ_and_use_every_kind_of_choice():
    seen = [ran(**options)[1] for options in ORDERS]
    assert len({text_of(one) for one in seen}) == len(ORDERS)
    flat = [one for choices in seen[3:] for one in choices]
    turns = [one for one in flat if isinstance(one, Turn)]
    assert any(isinstance(one, Returned) for one in flat)
    assert any(isinstance(one, Moved) and one.tear for one in flat)
    assert any(one.tear for one in turns)
    assert any(one.shuffle for one in turns)
    assert any(not isinstance(one.lanes, range) for one in turns)
    assert {one.accesses for one in turns} == {1, 255}


@pytest.mark.parametrize("options", ORDERS[3:6] + ORDERS[-3:], ids=NAMES[3:6] + NAMES[-3:])
def test_after_a_part_of_them_who_ran_last_runs_on_to_the_end(options):
    events, choices, _, _ = ran(**options)
    for part in (0, len(choices) // 3, len(choices) - 2):
        begun, followed, (_, errors), _ = ran(**options, follows=choices[:part])
        assert errors == ["None"] * RANKS
        assert text_of(followed[:part]) == text_of(choices[:part])
        turns = [number for number, one in enumerate(followed[:part]) if isinstance(one, Turn)]
        steps = [number for number, line in enumerate(events) if line.startswith("stepped")]
        end = steps[len(turns)] if len(turns) < len(steps) else len(events)
        assert begun[: end - 1] == events[: end - 1]
        rest = [one for one in followed[part:] if isinstance(one, Turn)]
        if not part:
            assert switches(rest) < len(rest) * 2 / 3  # most turns are those of who ran before


@pytest.mark.slow
def test_late_accesses_follow_their_threads_not_the_seed():
    """Each is drawn again where its lane is at that line, whatever the seed says; without them all stores are seen."""
    events, choices, found, _ = ran(**WEAK[2])
    late = [one for one in choices if isinstance(one, Late)]
    assert len(late) > 5
    assert list(choices[: len(late)]) == late
    again, followed, same, _ = ran(**{**WEAK[2], "seed": 77}, follows=choices)
    assert (again, text_of(followed), same) == (events, text_of(choices), found)
    _, followed, _, _ = ran(**WEAK[2], follows=choices[len(late) :])
    assert not any(isinstance(one, Late) for one in followed)


@pytest.mark.slow
def test_late_accesses_are_told_where_they_are_kept():
    """The kernel's loads, stores, atomics and copies: each with what it saw or stored, and what was there instead."""
    told = {}
    for options in WEAK[:3]:
        for is_kept in (False, True):
            world, log = make_world(RANKS, records_choices=is_kept, step_budget=20_000, **options), Lates()
            world.space.events.add(log)
            run(world, work)
            told[options["seed"], is_kept] = log.told
            late = sum(isinstance(one, Late) for one in world.choices)
            assert len(log.told) <= late, "vectors whose elements came in another order are late, and tell nothing"
    assert not any(told[seed, False] for seed in range(3))
    found = [one for seed in range(3) for one in told[seed, True]]
    assert len(found) > 10
    assert all(len(one.seen) == len(one.newest) and (one.seen != one.newest).any() for one in found)
    assert all(one.count == 1 for one in found)


def test_choices_may_be_left_out():
    """Of those that follow, what is not possible any more is passed over, and the run ends."""
    _, choices, _, _ = ran(schedule="random", seed=3)
    for keep in (2, 3, 5):
        thinned = tuple(one for number, one in enumerate(choices) if number % keep)
        _, _, (_, errors), _ = ran(schedule="random", seed=3, follows=thinned)
        assert errors == ["None"] * RANKS


APART = {"schedule": "random", "seed": 7}
"""An order in which each rank's first launch begins at a time of its own."""


def test_turns_are_those_of_the_same_ranks_where_launches_begin_together():
    _, choices, _, _ = ran(**APART)
    first = [one for one in choices if isinstance(one, Began) and one.launches[0][1] == 0]
    assert len(first) > 1
    together = tuple(one for one in choices if not isinstance(one, Began))
    _, followed, (_, errors), _ = ran(**APART, follows=together)
    assert errors == ["None"] * RANKS
    assert followed[0] == Began(tuple((rank, 0) for rank in range(RANKS)))
    idle = (number for number, one in enumerate(together) if isinstance(one, Moved) and one.idle)
    count = next(idle)  # from here on nothing else could happen, which is not so where another rank can run
    assert count > 20
    assert text_of(followed[1 : count + 1]) == text_of(together[:count])


def test_a_launch_that_was_to_begin_later_begins_before_the_next_turn():
    """Its due time is that of the choice, whatever the seed says: another seed follows the same choices."""
    events, choices, found, _ = ran(**APART)
    again, followed, same, _ = ran(**{**APART, "seed": 1}, follows=choices)
    assert (again, text_of(followed), same) == (events, text_of(choices), found)


def test_after_the_choices_each_launch_has_its_turn_though_another_never_waits():
    """It polls with stores, so it never sleeps, for what the launch of another stream stores."""
    poll = "SPIN: st.global.b32 [%flag+4], %lane; ld.acquire.gpu.global.b32 %r1, [%flag]; setp.eq.u32 %p1, %r1, 0;"
    bodies = {None: f"{poll} @%p1 bra SPIN;", 5: "mov.u32 %r1, 1; st.release.gpu.global.b32 [%flag], %r1;"}

    def program(fabric):
        flag = put(fabric, "flag", np.zeros(2, np.uint32))
        for stream, body in bodies.items():
            start(fabric, executable(module(body, ["u64 flag"])), 1, 1, [flag.address], stream=stream)
        fabric.synchronize()

    assert run(make_world(1, follows=(), step_budget=2_000), program).errors == [None]


def test_switches_count_who_takes_over():
    lanes = [range(4), range(4), np.array([0, 2]), np.array([0, 2]), range(2)]
    turns = [Turn(0, 8, 1, one) for one in lanes]
    assert switches([*turns, Returned()]) == 2


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        '["turn",0,8,1,[],1,0,0,0]',
        '["turn",0,8,1,[[5,2],[3,1]],1,0,0,0]',
        '["turn",0,8,-1,[[0,1]],1,0,0,0]',
        '["turn",0,0,1,[[0,1]],1,0,0,0]',
        '["copies",0,8,["a"],-1,0,0]',
        '["copies",0,8,[[0,1,2]],-1,0,0]',
        '["begin",[],0]',
        '["late",0,8,3,12,0,1]',
        '["late",0,8,3,12,-1,[1]]',
        '["begin",[[0,-1]],0]',
        '["waits"]',
        "[]",
        "7",
    ],
)
def test_a_line_that_is_no_choice_is_named(line):
    good = text_of([Began(((0, 0), (1, 2)), True), Turn(0, 8, 3, range(5, 9)), Moved(1, 8, ((0, 0), (2, 1)), 7, 5)])
    good = text_of([Late(0, 8, 3, 12, 1, (0, 2)), *choices_of(good)])
    assert text_of(choices_of(good)) == good
    with refused(ValueError):
        choices_of(good + line)
