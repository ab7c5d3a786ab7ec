"""What is made of a profile: text, trace, JSON, and counts at larger sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from simulator.clock.costs import Costs
from simulator.clock.extend import extended, summary_of
from simulator.clock.profile import Copies, LaunchProfile, Lines, Path, Phase, Segment, Span, Traffic
from simulator.clock.text import explained
from simulator.clock.trace import trace_of
from tests.golden import refused, same_text

COSTS = Costs()


def launch(units: int, extra: int = 0) -> LaunchProfile:
    """A launch of two ranks with a number of units a thread: a load each, then a store that the other rank awaits."""
    segments, time = [], 0.0
    for unit in range(units):
        segments.append(Segment("own_load", 0, 1, 2, time, time + 0.25, 4, line=10 + unit, source="a.py:3", text="ld"))
        time += 0.25
    segments.append(Segment("store", 0, 1, 2, time, time, 0, line=20, text="st"))
    segments.append(Segment("hop", 1, 0, 0, time, time + 0.5, 0, line=30, text="ld.acquire", awaited=(0, 1, 2, 20)))
    time += 0.5
    lanes = 64 * units + extra
    phase = Phase(
        0, 0.0, time, (Traffic(0, 0, "read", "lanes", 16 * lanes, lanes), Traffic(0, 1, "write", "lanes", 4, 1)),
        16 * lanes, lanes, 1, 1.0, 16, 5 + 4 * units, 40 + 32 * units, 7, (Lines(0, 8 * units, 1),), (0, 0),
        Copies({1024: units}, 2, units, 0),
    )  # fmt: skip
    spans = (
        Span(0, 1, 2, "own_load", 0.0, time - 0.5, 10, "ld"),
        Span(1, 0, 0, "hop", 0.0, time, 30, "ld.acquire", (0, 1, 2, 20), time - 0.5),
        Span(1, 0, 0, "barrier", time, time, 40, "bar.sync", (1, 0, 0, 30), time),
    )
    return LaunchProfile("op/one", 3, (0, 1), 2, 96, COSTS, (time - 0.5, time), Path(tuple(segments)), (phase,), spans)


def test_the_json_form_comes_back() -> None:
    one = launch(2)
    document = json.loads(json.dumps(one.document()))
    assert LaunchProfile.of(document) == replace(one, spans=())
    assert document["form"] == 1
    assert document["clock_us"] == 1.0
    assert document["counts"] == {"own_load": 2, "hop": 1, "store": 1, "instruction": 8}
    with refused(ValueError):
        LaunchProfile.of({**document, "form": 2})


def test_the_keys_of_the_json_form_stay() -> None:
    document = launch(1).document()
    assert list(document) == [
        "form", "clock_us", "counts", "kernel", "number", "ranks", "grid", "block", "costs", "ends_us", "path", "phases",
    ]  # fmt: skip
    assert list(document["phases"][0]) == [
        "number", "from_us", "to_us", "traffic", "busiest_block_bytes", "busiest_block_accesses", "loads_in_flight",
        "mean_loads_in_flight", "bytes_in_flight", "instructions", "total_instructions", "looks", "lines",
        "switch_lines", "copies",
    ]  # fmt: skip
    assert list(document["phases"][0]["traffic"][0]) == ["viewer", "target", "action", "how", "bytes", "accesses"]
    assert document["phases"][0]["copies"] == {"sizes": {"1024": 1}, "stages": 2, "loads": 1, "stores": 0}


def test_the_text_says_who_waits_for_what() -> None:
    text = explained(launch(2))
    assert text.splitlines() == [
        "op/one, launch 3: 1.00 us along the critical path (2 ranks, 2 blocks of 96 threads)",
        "      0.00 to     0.25 us  rank 0, block 1, warp 2      loads from its own memory; PTX line 10, a.py:3",
        "      0.25 to     0.50 us  rank 0, block 1, warp 2      loads from its own memory; PTX line 11, a.py:3",
        "      0.50 to     0.50 us  rank 0, block 1, warp 2      stores what others wait for; PTX line 20",
        "      0.50 to     1.00 us  rank 1, block 0, warp 0      "
        "waits for rank 0's store (block 1, PTX line 20); PTX line 30",
        "  steps: 2 own_load, 1 hop, 1 store, 8 instruction",
    ]


def test_a_long_path_shows_both_ends() -> None:
    lines = explained(launch(100), most=10).splitlines()
    assert len(lines) == 13
    assert lines[6] == "  .. 92 more steps .."
    same_text(lines[-2])


def test_the_trace_is_what_perfetto_reads() -> None:
    trace = json.loads(json.dumps(trace_of([launch(1), launch(1)])))
    events: list[dict[str, Any]] = trace["traceEvents"]
    assert {one["ph"] for one in events} == {"M", "X", "s", "f"}
    names = {(one["pid"], one.get("tid")): one["args"]["name"] for one in events if one["ph"] == "M"}
    assert names == {
        (0, None): "rank 0",
        (1, None): "rank 1",
        (0, 1): "block 1",
        (1, 0): "block 0",
        (2, None): "critical path",
    }
    slices = [one for one in events if one["ph"] == "X"]
    assert all(one["dur"] >= 0 and {"ts", "pid", "tid", "name"} <= set(one) for one in slices)
    starts, ends = ([one for one in events if one["ph"] == phase] for phase in "sf")
    assert [one["id"] for one in starts] == [one["id"] for one in ends]
    assert len({one["id"] for one in starts}) == 2
    for start, end in zip(starts, ends, strict=True):
        assert start["ts"] <= end["ts"]
        for arrow in (start, end):  # an arrow's end without a slice at that moment is not shown
            here = [one for one in slices if (one["pid"], one["tid"]) == (arrow["pid"], arrow["tid"])]
            assert any(one["ts"] <= arrow["ts"] <= one["ts"] + one["dur"] for one in here)
    second = [one for one in slices if one["pid"] == 2][len(slices) // 4 :]
    assert min(one["ts"] for one in second) > 0.75


def test_counts_go_on_along_a_line() -> None:
    wanted = summary_of(1600, launch(16))
    found = extended({size: launch(size // 100) for size in (100, 200, 400)}, 1600)
    assert found.simulated == (100, 200, 400)
    assert found.counts == wanted.counts
    assert found.clock_us == pytest.approx(wanted.clock_us)
    assert found.phases == wanted.phases
    assert found.weigh(Costs(own_load=2.0)) == pytest.approx(16 * 2.0 + 0.69)


def test_what_is_on_no_line_is_refused() -> None:
    simulated = {size: launch(size // 100) for size in (100, 200, 400)}
    bent = {**simulated, 400: launch(4, extra=64)}
    with refused(ValueError):
        extended(bent, 800)
    with pytest.raises(ValueError, match="3 or more"):
        extended({100: simulated[100], 200: simulated[200]}, 800)
    with pytest.raises(ValueError, match="above the simulated 400"):
        extended(simulated, 300)
    with refused(ValueError):
        extended({**simulated, 400: replace(simulated[400], grid=4)}, 800)
    with refused(ValueError):
        extended({**simulated, 400: replace(simulated[400], phases=())}, 800)
