"""Launches in a row on buffers that keep what they hold: one kernel or several, on streams, as a graph, explored."""

import pytest
import torch

import symlab
from symlab import launching
from tests.golden import refused
from tests.symlab import tensor_kernels

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
ADD = f"""{HEAD}
.visible .entry add(.param .u64 out, .param .u32 count, .param .u32 more)
{{
  .reg .pred %p; .reg .b32 %r<5>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [out]; ld.param.u32 %r1, [count]; ld.param.u32 %r2, [more];
  mov.u32 %r3, %tid.x; setp.ge.u32 %p, %r3, %r1; @%p ret;
  mul.wide.u32 %d2, %r3, 4; add.s64 %d1, %d1, %d2;
  ld.global.u32 %r4, [%d1]; add.u32 %r4, %r4, %r2; st.global.u32 [%d1], %r4; ret;
}}
"""
"""Adds `more` to the first `count` elements of out."""

WAIT = f"""{HEAD}
.visible .entry wait(.param .u64 flag, .param .u64 out)
{{
  .reg .pred %p; .reg .b32 %r; .reg .b64 %d<3>;
  ld.param.u64 %d1, [flag]; ld.param.u64 %d2, [out];
again:
  ld.acquire.gpu.global.u32 %r, [%d1]; setp.eq.u32 %p, %r, 0; @%p bra again;
  st.global.u32 [%d2], %r; ret;
}}
"""
SIGNAL = f"""{HEAD}
.visible .entry signal(.param .u64 flag)
{{
  .reg .b32 %r; .reg .b64 %d; ld.param.u64 %d, [flag]; mov.u32 %r, 5; st.release.gpu.global.u32 [%d], %r; ret;
}}
"""
PASS_ON = f"""{HEAD}
.visible .entry pass_on(.param .u64 next, .param .u64 own, .param .u64 out, .param .u32 launch)
{{
  .reg .b32 %r<4>; .reg .b64 %d<4>;
  ld.param.u64 %d1, [next]; ld.param.u64 %d2, [own]; ld.param.u64 %d3, [out]; ld.param.u32 %r1, [launch];
  ld.relaxed.sys.global.u32 %r2, [%d2]; st.global.u32 [%d3], %r2;
  add.u32 %r3, %r1, 1; st.relaxed.sys.global.u32 [%d1], %r3; ret;
}}
"""
"""Writes down what the rank before has sent in the launch before, and sends; nothing waits for it."""

ONE = {"grid": 1, "block": 32}
OUT = {"out": (8, torch.int32, 0)}


def ran(kernel, arguments=(), buffers=OUT, **how):
    how = {"ranks": 1, "schedule": "fair", **ONE, **how}
    done = symlab.simulate(kernel, buffers=buffers, arguments=arguments, **how)
    return [one.tolist() for one in done.outputs["out"]]


def test_buffers_keep_what_they_hold():
    assert ran(ADD, ["out", ("u32", 4), ("u32", 2)], launches=3) == [[6] * 4 + [0] * 4]


def test_the_word_launch_counts_them():
    assert ran(ADD, ["out", ("u32", 4), "launch"], launches=4) == [[6] * 4 + [0] * 4]
    inside = ADD.replace(".param .u32 count, .param .u32 more", ".param .b8 given[8]")
    inside = inside.replace("[count]", "[given]").replace("[more]", "[given+4]")
    assert ran(inside, ["out", {"struct": [{"u32": 2}, "launch"]}], launches=3) == [[3] * 2 + [0] * 6]


def test_sizes_alternate():
    steps = [{"kernel": ADD, "arguments": ["out", ("u32", count), ("u32", 1)]} for count in (8, 2)]
    assert ran(steps, launches=2) == [[4] * 2 + [2] * 6]


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("producer_first", [False, True])
def test_a_producer_and_a_consumer_on_two_streams(graph, producer_first):
    buffers = {"flag": (1, torch.int32, 0), "out": (1, torch.int32)}
    steps = [
        {"kernel": WAIT, "arguments": ["flag", "out"], "stream": 1},
        {"kernel": SIGNAL, "arguments": ["flag"], "stream": 2},
    ][:: -1 if producer_first else 1]
    assert ran(steps, buffers=buffers, graph=graph, block=1, launches=2) == [[5]]


def test_a_function_has_the_stream_that_it_is_given():
    buffers = {"flag": ((5, 64), "float32", 0), "out": (1, torch.int32)}
    steps = [
        {"kernel": WAIT, "arguments": ["flag", "out"]},
        {"kernel": tensor_kernels.Filled(2.5), "arguments": ["flag"], "stream": 1, "grid": None, "block": None},
    ]
    assert ran(steps, buffers=buffers, block=1) == [[0x40200000]]


def test_a_consumer_before_its_producer_on_one_stream_is_a_deadlock():
    buffers = {"flag": (1, torch.int32, 0), "out": (1, torch.int32)}
    steps = [{"kernel": WAIT, "arguments": ["flag", "out"]}, {"kernel": SIGNAL, "arguments": ["flag"]}]
    with pytest.raises(symlab.WorldFailure, match="deadlock"):
        ran(steps, buffers=buffers, block=1)


def test_kernels_are_loaded_before_a_graph_captures_them(monkeypatch):
    """A capture fails at what loads a module."""
    said = []

    class Noting:
        """A fabric of one rank without memory."""

        rank = 0

        def load(self, executable):
            said.append(f"load {executable.entry}")

        def launch(self, executable, launch, arguments):
            said.append(f"launch {executable.entry}")

    def captured(fabric, queue):
        said.append("capture")
        queue()
        return lambda: said.append("replay")

    monkeypatch.setattr(launching, "captured", captured)
    steps = [{"kernel": ADD, "arguments": ["out", ("u32", 8), ("u32", 1)]}, {"kernel": SIGNAL, "arguments": ["out"]}]
    asked = launching.Asked(steps, OUT, graph=True, launches=2, **ONE)
    work = launching.brought_launch(asked, 1)
    calls = [(step.executable, step.launch, ()) for step in work.steps]
    launching._queue(Noting(), [calls] * 2, is_graph=True)()
    assert said == ["load add", "load signal", "capture", "launch add", "launch signal", "replay", "replay"]


def test_replays_of_a_graph_follow_one_another():
    """Two streams without a graph race for the elements; in a graph the next replay waits for both."""
    more = [("u32", 4), ("u32", 1)]
    steps = [
        {"kernel": ADD, "arguments": ["out", *more], "stream": 1},
        {"kernel": ADD, "arguments": ["out+16", *more], "stream": 2},
    ]
    how = {"ranks": 1, **ONE, "buffers": OUT, "races": True, "seeds": 3, "launches": 3}
    done = symlab.simulate(steps, graph=True, **how)
    assert done.outputs["out"][0].tolist() == [3] * 8
    assert not done.findings
    crossed = [{**steps[0], "stream": 1 + number, "arguments": ["out", *more]} for number in range(2)]
    assert symlab.simulate(crossed, **how).findings


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [False, True])
def test_a_gpu_makes_launches_in_a_row_on_streams_and_in_a_graph(graph):
    more = [("u32", 4), ("u32", 1)]
    steps = [
        {"kernel": ADD, "arguments": ["out", *more], "stream": 1},
        {"kernel": ADD, "arguments": ["out+16", *more], "stream": 2},
    ]
    with symlab.world(ranks=1, fabric="nvshmem") as world:
        done = world.launch(steps, **ONE, buffers=OUT, launches=3, graph=graph)
    assert done.outputs["out"][0].tolist() == [3] * 8


PASSED = {
    "ranks": 2,
    "grid": 1,
    "block": 1,
    "buffers": {"own": (1, torch.int32, 0), "out": (1, torch.int32)},
    "arguments": lambda rank: [("peer", "own", 1 - rank), "own", "out", "launch"],
    "launches": 2,
}


def test_explore_finds_and_shrinks_what_goes_wrong_between_launches():
    done = symlab.explore(PASS_ON, **PASSED, expected={"out": torch.tensor([1])}, seeds=50, processes=1)
    assert done.found.failure.kind == "wrong output"
    assert {row.launch for row in done.found.rows if row.launch is not None} >= {0, 1}


def test_explore_makes_no_more_launches_than_it_takes():
    """What is right after fewer is what the fair order leaves; what a user expects is of all of them."""
    many = {**PASSED, "launches": 6}
    done = symlab.explore(PASS_ON, **many, seeds=50, processes=1)
    assert done.found.launches < 6
    kept = symlab.explore(PASS_ON, **many, expected={"out": torch.tensor([5])}, seeds=50, processes=1)
    assert kept.found.launches == 6


def test_the_fixture_takes_launches_in_a_row(symlab_world):
    world = symlab_world(ranks=2)
    done = world.launch(ADD, **ONE, buffers=OUT, arguments=["out", ("u32", 4), "launch"], launches=3)
    assert [one.tolist() for one in done.outputs["out"]] == [[3] * 4 + [0] * 4] * 2


IMPOSSIBLE = [
    {"launches": 0},
    {"launches": 1.5},
    {"graph": True},
    {"graph": "no"},
    {"kernel": []},
    {"kernel": [ADD]},
    {"kernel": [{"grid": 1}]},
    {"kernel": [{"kernel": ADD, "buffers": {}}]},
    {"kernel": [{"kernel": ADD, "arguments": ["out"]}]},
    {"arguments": ["out", ("u32", 1), ("f32", "launch")]},
    {"arguments": [("pointer", ["launch"]), ("u32", 1), ("u32", 1)]},
    {"dependent": True, "arguments": ["out", ("u32", 1), ("u32", 1)]},
]


@pytest.mark.parametrize("number", range(len(IMPOSSIBLE)))
def test_what_can_not_be_is_one_line(number):
    given = {"kernel": ADD, "arguments": ["out", ("u32", 1), "launch"], **IMPOSSIBLE[number]}
    with refused(ValueError, r"(?<=ValueError: )(rank \d: )?"):
        ran(given.pop("kernel"), given.pop("arguments"), **given)
