"""The probes of floors in the simulator: right and without a race on several numbers of ranks; each check can fail."""

import copy
import importlib

import pytest

from runner.custom.description import custom_job
from runner.custom.running import CompiledJob
from runner.gpu.gpu_type import FLOOR_NAMES
from runner.request.configured import configured
from runner.request.validate import validate
from runner.world.fabrics import make_world
from runner.world.world import WorldFailure
from symlab.speed.calibrate import probes
from symlab.speed.calibrate.probes import BY_NAME, ON_GPUS, PROBES, Scale
from tests.golden import refused

SIMULATED = Scale(copy_turns=1, reduction_turns=1, hot_lines=1 << 10, cold_lines=4 << 10)
"""Enough to check that each does what it says: the simulator has no clock."""

FEW = (
    "empty_dependent_1",
    "ping_pong_release_1",
    "load_remote_cold",
    "push_1",
    "pull_both_1",
    "reduction_1",
    "bulk_push_1",
)
"""At least one of each kernel, for `make test`; all of them are slow."""


def request_of(section, ranks):
    fabric = {"name": "simulator", "heap_bytes": "64M", "step_budget": 2_000_000}
    values = {"op": "custom", "world_size": ranks, "fabric": fabric, "check": {"results": True, "races": True}}
    return validate(configured({**values, "custom": section, "track": {"name": "none"}}))


class Bench:
    """Worlds by number of ranks, each kept until something broke it."""

    def __init__(self):
        self._worlds = {}

    def run(self, section, ranks):
        request = request_of(section, ranks)
        job = custom_job(section, ranks, 0, True)
        compiled = job.kernel.compiled(job.spec, ranks, "sm_90a")
        if ranks not in self._worlds or not self._worlds[ranks].healthy:
            self.close(ranks)
            self._worlds[ranks] = make_world(request.fabric, ranks, lambda line: None)
        world = self._worlds[ranks]
        ran = CompiledJob(job, compiled)
        outcomes = ran.outcomes(world, request)
        return job, compiled, ran.judged(outcomes).check, tuple(world.findings() or ())

    def close(self, ranks):
        if ranks in self._worlds:
            self._worlds.pop(ranks).close()

    def close_all(self):
        for ranks in tuple(self._worlds):
            self.close(ranks)


@pytest.fixture(scope="module")
def bench():
    made = Bench()
    yield made
    made.close_all()


def passes(bench, probe, ranks):
    _, compiled, check, findings = bench.run(probe.section(SIMULATED), ranks)
    assert check.faults == ()
    assert findings == ()
    assert compiled.launch.grid == (probe.blocks, 1, 1)
    assert compiled.launch.dependent == ("dependent" in probe.name)


@pytest.mark.parametrize(
    "name", [*FEW, *(pytest.param(name, marks=pytest.mark.slow) for name in BY_NAME if name not in FEW)]
)
def test_a_probe_is_right_and_has_no_race(bench, name):
    passes(bench, BY_NAME[name], 2)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("name", [*FEW, "ping_pong_relaxed", "load_own_hot", "pull_8"])
def test_a_probe_is_right_on_more_ranks(bench, name, ranks):
    passes(bench, BY_NAME[name], ranks)


def wrong_flag(section):
    section["arguments"][1] = {"address": "last"}


def one_turn_less(section):
    section["buffers"]["target"]["shape"] = [2 * one for one in section["buffers"]["target"]["shape"]]
    section["buffers"]["source"]["shape"] = [2 * one for one in section["buffers"]["source"]["shape"]]


def same_summand(section):
    section["arguments"][1] = {"address": "left"}


def fewer_lines(section):
    section["arguments"][3] = {"u32": section["arguments"][3]["u32"] // 2}


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("load_own_hot", fewer_lines),
        ("load_remote_cold", fewer_lines),
        ("push_1", one_turn_less),
        ("pull_both_1", one_turn_less),
        ("bulk_push_1", one_turn_less),
        ("reduction_1", same_summand),
    ],
)
def test_a_probe_that_did_not_do_its_work_is_wrong(bench, name, spoil):
    section = copy.deepcopy(BY_NAME[name].section(SIMULATED))
    spoil(section)
    _, _, check, _ = bench.run(section, 2)
    assert check.faults


def test_a_ping_pong_that_does_not_bounce_fails(bench):
    """Each rank polls another word than the one that the other stores to."""
    section = copy.deepcopy(BY_NAME["ping_pong_relaxed"].section(SIMULATED))
    wrong_flag(section)
    with pytest.raises(WorldFailure) as caught:
        bench.run(section, 2)
    assert "nothing can change" in caught.value.message or "step" in caught.value.message


@pytest.mark.parametrize("stores", [None, 0, 1, 64])
def test_orders_and_the_stores_before_a_release_are_in_the_code(stores):
    name = "relaxed" if stores is None else f"release_{stores}"
    job = custom_job(BY_NAME[f"ping_pong_{name}"].section(SIMULATED), 2, 0, True)
    ptx = job.kernel.compiled(job.spec, 2, "sm_90a").executable.ptx
    store, load = ("relaxed", "relaxed") if stores is None else ("release", "acquire")
    assert f"ld.{load}.sys" in ptx
    kept, sends = 2, 2  # the base and the count; rank 0's side and rank 1's
    assert ptx.count("st.global.b32") == kept + sends * (stores or 0)
    assert ptx.count(f"st.{store}.sys") == sends
    assert ("st.release" in ptx) == (stores is not None)


def test_constants_are_those_of_the_kernels():
    ping_pong, loads, copies, sums, bulk = (
        importlib.import_module(f"kernels.floors.{name}")
        for name in ("ping_pong", "dependent_loads", "copies", "local_reduction", "bulk_copies")
    )
    assert (ping_pong.TRIPS, ping_pong.LINE_BYTES) == (probes.TRIPS, probes.LINE_BYTES)
    assert (loads.STEPS, loads.LINE_BYTES, loads.COLD_DIVISOR) == (probes.STEPS, probes.LINE_BYTES, probes.COLD_DIVISOR)
    assert copies.TURN_BYTES == bulk.TURN_BYTES == probes.COPY_TURN_BYTES
    assert sums.TURN_BYTES == probes.REDUCTION_TURN_BYTES
    for probe in PROBES:
        made = getattr(importlib.import_module(f"kernels.floors.{probe.module}"), probe.name)
        assert getattr(made, "blocks", 1) == probe.blocks


def test_every_floor_has_probes_and_each_its_own_place():
    assert {probe.floor for probe in PROBES} == set(FLOOR_NAMES)
    places = [(probe.floor, probe.count) for probe in PROBES]
    assert len(set(places)) == len(PROBES) == len(BY_NAME)
    empty = {probe.blocks for probe in PROBES if probe.floor == "empty_node_us"}
    assert {probe.blocks for probe in PROBES} == empty, "each bandwidth and latency is without an empty node's time"


def test_cold_lines_are_beyond_every_l2():
    """What a cold walk loads was written before as much as an L2 holds, and a launch does not meet a line again."""
    from runner.gpu.names import gpu_names
    from runner.gpu.reading import gpu_type

    written_after = ON_GPUS.cold_lines * probes.LINE_BYTES * (probes.COLD_DIVISOR - 1) // probes.COLD_DIVISOR
    assert written_after > max(gpu_type(name).memory.l2_bytes for name in gpu_names())
    launches = 2 + 10 * (1 + 10)  # the checks, and the usual calls of warm-up and samples
    assert ON_GPUS.cold_lines // probes.COLD_DIVISOR > launches * probes.STEPS
    assert ON_GPUS.hot_lines * probes.LINE_BYTES < min(gpu_type(name).memory.l2_bytes for name in gpu_names())


def test_values_are_of_the_launch_without_an_empty_node():
    assert BY_NAME["empty_32"].value(0.6, 0.0, ON_GPUS) == 0.6
    assert BY_NAME["ping_pong_relaxed"].value(256.5, 0.5, ON_GPUS) == 1.0
    assert BY_NAME["load_own_hot"].value(128.5, 0.5, ON_GPUS) == 0.5
    assert BY_NAME["push_8"].value(11.0, 1.0, ON_GPUS) == pytest.approx(4 * 8 * 65536 / 10e3)
    assert BY_NAME["reduction_1"].value(11.0, 1.0, ON_GPUS) == pytest.approx(3 * 8 * 32768 / 10e3)
    with refused():
        BY_NAME["push_1"].value(1.0, 1.0, ON_GPUS)
