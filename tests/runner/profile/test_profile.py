"""profile(case): kernels of the catalogue, simulated with the clock."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from cases.case import Case
from kernels.catalogue import NAMES, find
from runner.profile.simulate import CaseProfile, profile
from simulator.clock.costs import H200_TRIAL
from simulator.clock.extend import extended
from simulator.clock.text import explained
from simulator.clock.trace import trace_of

CACHE = Path.home() / ".cache" / "symlab" / "kernels"


def case_of(name: str, world_size: int, size_bytes: int) -> Case:
    """A case of a kernel in bfloat16."""
    spec = find(name)
    accumulator = "float32" if "float32" in spec.accumulators else spec.accumulators[0]
    return Case(*name.split("/"), "bfloat16", accumulator, spec.reductions[0], size_bytes, world_size)


def test_one_shot_waits_for_two_barriers_and_one_load() -> None:
    found = profile(case_of("all_reduce/one_shot", 4, 64 << 10), launches=2)
    assert [one.number for one in found.launches] == [0, 1]
    counts = found.last.path.counts
    assert {kind: counts[kind] for kind in counts if kind != "instruction"} == {
        "own_load": 1,  # the table of peers' flags
        "remote_load": 1,
        "hop": 2,
        "store": 2,
        "fence": 1,
        "fence_after_stores": 1,
        "barrier": 2,
    }
    assert found.last.clock_us == pytest.approx(0.3 + 2 * (0.58 + 0.69) + 0.87)
    body = found.last.phases[1]
    for viewer in range(4):
        assert body.bytes("read", viewer=viewer, target=(viewer + 1) % 4) == 64 << 10
    assert body.loads_in_flight == 4
    document = json.loads(json.dumps(found.document()))
    assert CaseProfile.of(document).document() == found.document()


def test_counters_are_of_one_launch() -> None:
    """The records' counters sum launches; a profile's are of each."""
    found = profile(case_of("all_gather/push", 2, 16 << 10), launches=3)
    assert len(found.launches) == 3
    each = [one.bytes("write", viewer=0, target=1) for one in found.launches]
    assert len(set(each)) == 1
    assert 8 << 10 <= each[0] < (8 << 10) + 512


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_kernel_has_a_path(name: str) -> None:
    found = profile(case_of(name, 2, 4 << 10), keeps_spans=True)
    for one in found.launches:
        assert one.path.weigh(H200_TRIAL) == pytest.approx(one.path.total_us)
        assert one.path.total_us == pytest.approx(max(one.ends_us))
        steps = one.path.segments
        assert steps[0].from_us == 0.0
        assert all(a.to_us == b.from_us for a, b in pairwise(steps))
        assert all(kind in one.path.counts for kind in ("own_load", "instruction"))
        assert not name.startswith("barrier/") or "hop" in one.path.counts or "switch_hop" in one.path.counts
        assert len(explained(one).splitlines()) <= 63
    assert trace_of(found.launches)["traceEvents"]


@pytest.mark.slow
def test_larger_sizes_follow_from_smaller_ones() -> None:
    """What is extended to 8 MiB is what the simulator counts there. A line through sizes between whole rounds of the
    loop bends, and is refused."""
    name = "all_reduce/one_shot"
    found = {size: profile(case_of(name, 2, size), launches=1).last for size in (2 << 20, 3 << 20, 4 << 20, 6 << 20)}
    wanted = profile(case_of(name, 2, 8 << 20), launches=1).last
    made = extended({size: one for size, one in found.items() if size != 3 << 20}, 8 << 20)
    assert made.counts == wanted.path.counts
    assert made.clock_us == pytest.approx(wanted.clock_us)
    for one, other in zip(made.phases, wanted.phases, strict=True):
        assert one.traffic == other.traffic
        assert one.lines == other.lines
        assert one.instructions == other.instructions
    with pytest.raises(ValueError, match="can't be extended"):
        extended({size: found[size] for size in (2 << 20, 3 << 20, 4 << 20)}, 8 << 20)
