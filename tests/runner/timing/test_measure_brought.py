"""Entries of YAML files are timed, and put under stress, as the catalogue's kernels are beside them."""

import dataclasses
import pickle

import pytest

from cases.case import Case
from cases.ops import collective
from kernels.compile import executable
from kernels.spec import cases_in_turn
from runner.case import stress
from runner.case.bringing import found_at
from runner.case.contestant import Contestant
from runner.case.stress import StressPlan, run_stressed
from runner.timing.combine import combine
from runner.timing.measure import MeasurePlan
from runner.world.threads import ThreadWorld
from simulator.fabric import SimulatorFabric
from simulator.world import SimulatorOptions
from tests.kernels.own.own_entries import ADDED, SUM, write_entries
from tests.patience import NEVER_S
from tests.runner.measuring import TIMING, Bench, contestant

FLOAT = {"dtype": "float32", "accumulator": "native", "reduction": "sum"}


@pytest.fixture
def brought(tmp_path, compile_cache):
    """brought(name, **changes of the case): an entry as a contestant."""
    file = write_entries(tmp_path, sum=SUM, added=ADDED)

    def made(name, **changes):
        spec = found_at(f"{file}:{name}").spec
        case = Case("all_reduce", spec.algorithm, *FLOAT.values(), 4096, 2, **changes)
        return Contestant(case, spec, executable(spec, case, "sm_90a", compile_cache))

    return made


def test_entries_are_timed_beside_the_catalogue(brought, compile_cache):
    """As ranks in other processes get them. What a driver packs once for each launch stays the same object, workspaces
    are written once, and modules are loaded by checks before any graph is captured."""
    one, function = brought("sum@blocks8"), brought("added")
    plan = MeasurePlan((contestant(compile_cache, "one_shot", **FLOAT), one, function), TIMING)
    launched = []
    written = []

    def spoil(recording, stopwatch):
        if recording.rank:
            return
        launch, write = recording.fabric.launch, recording.fabric.write

        def launches(compiled, *given):
            launched.append((compiled.name, id(given[0]), id(given[1])))
            launch(compiled, *given)

        def writes(region, *given):
            written.append(region.name)
            write(region, *given)

        recording.fabric.launch, recording.fabric.write = launches, writes

    bench = Bench(pickle.loads(pickle.dumps(plan)), 2, spoil=spoil)
    timed, _ = combine(plan, bench.run(), None)
    for found in timed:
        assert found.problem == ""
        assert min(found.timing.checked_before, found.timing.checked_after) > 0
    slots = timed[1].timing.slots
    for name in ("all_reduce/sum_blocks8", "all_reduce/added"):
        mine = [place for called, *place in launched if called == name]
        assert len(mine) > 2 * slots
        assert len({tuple(place) for place in mine}) == slots
        log = bench.logs[0]
        assert log.index(f"launch {name}") < log.index("capture")
    assert {written.count(f"all_reduce/sum_blocks8 {name}") for name in ("flags", "epochs", "peers of flags")} == {1}


def test_a_wrong_entry_has_no_time(brought):
    one = brought("sum@blocks8")
    text = one.executable.ptx
    worse = dataclasses.replace(one.executable, ptx=text.replace("add.rn.f32", "sub.rn.f32"))
    plan = MeasurePlan((dataclasses.replace(one, executable=worse),), TIMING)
    (timed,), _ = combine(plan, Bench(plan, 2).run(), None)
    assert timed.timing is None
    assert timed.wrong is not None


@pytest.mark.parametrize("name", ["late_rank", "alternating_sizes", "graph_out_of_step", "no_host_barrier"])
def test_entries_keep_what_they_promise(name, brought, compile_cache, monkeypatch):
    """Of a graph, what it launches is loaded before it is captured: a driver can't load within."""
    one = brought("sum", stress=name)
    cases = cases_in_turn(one.spec, collective("all_reduce"), one.case)
    made = tuple(executable(one.spec, case, "sm_90a", compile_cache) for case in cases)
    plan = StressPlan(cases, one.spec, made)
    events = []
    load = SimulatorFabric.load

    def loads(fabric, compiled):
        events.append("load")
        load(fabric, compiled)

    def captures(fabric, queue):
        events.append("capture")
        return queue

    monkeypatch.setattr(SimulatorFabric, "load", loads)
    monkeypatch.setattr(stress, "captured", captures)
    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 22, schedule="random", seed=3))
    for outcome in world.run(run_stressed, pickle.loads(pickle.dumps(plan)), NEVER_S):
        assert (outcome.check.wrong, outcome.check.guard_faults) == (0, ())
    assert ("capture" in events) == (name == "graph_out_of_step")
    assert events[:1] in ([], ["load"])
