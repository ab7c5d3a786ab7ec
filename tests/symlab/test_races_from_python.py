"""races=True of the Python API, on worlds whose launches return prepared findings."""

import dataclasses

import pytest

import symlab
from cases.finding import Finding
from runner.world import fabrics
from runner.world.threads import ThreadWorld
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.golden import refused
from tests.rooms import needs
from tests.runner.found import LOAD, finding

PTX = """
.version 8.0
.target sm_90
.entry note(.param .u64 out, .param .u32 rank) {
  .reg .b64 %d; .reg .b32 %r; ld.param.u64 %d, [out]; ld.param.u32 %r, [rank]; st.global.u32 [%d], %r; ret;
}
"""
HOW = {"grid": 1, "block": 1, "buffers": {"out": (1, "int32")}, "arguments": ["out", ("u32", "rank")]}
FORMAL = finding("formal", "an acquire")


class Prepared(SimulatedWorld):
    """A simulated world that says what it is told to have found."""

    found: tuple[Finding, ...] = ()

    @property
    def findings(self):
        return self.found


@pytest.fixture
def found(monkeypatch):
    """The worlds of this test; found is what they find."""
    monkeypatch.setattr(Prepared, "found", (FORMAL,))

    def simulated(fabric, world_size):
        plain = SimulatorOptions(arch=fabric.arch, schedule=fabric.schedule, seed=fabric.seed)
        return ThreadWorld(world_size, dataclasses.replace(plain, races=fabric.races), Prepared(world_size, plain))

    monkeypatch.setattr(fabrics, "_simulated", simulated)
    return Prepared


def case():
    return symlab.case("all_reduce/one_shot", size_bytes=64, ranks=2)


@needs("checks")
def test_a_case_with_a_race_is_wrong(found, monkeypatch):
    monkeypatch.setattr(found, "found", (FORMAL, finding()))
    done = symlab.run(case(), races=True)
    assert (str(done.status), done.verified) == ("WRONG", False)
    assert done.reason.startswith("race: a release is missing between")
    assert [(one.severity, one.fails) for one in done.findings] == [("race", True), ("formal", False)]
    assert done.record.findings == done.findings
    assert done.record.request.configuration["check"] == {"results": True, "races": True}
    assert "check.races=true" in done.record.request.overrides


def test_without_it_a_case_was_not_checked(found):
    done = symlab.run(case())
    assert (str(done.status), done.findings) == ("PASSED", None)


@needs("checks")
def test_a_world_that_was_opened_for_it(found):
    with symlab.world(ranks=2, races=True) as world:
        done = symlab.run(case(), world=world)
        assert [one.severity for one in done.findings] == ["formal"]
        assert world.launch(PTX, **HOW).findings == done.findings
        assert world.findings() == done.findings
    with symlab.world(ranks=2) as world:
        assert world.launch(PTX, **HOW).findings is None
        assert world.findings() is None
        with refused():
            symlab.run(case(), world=world, races=True)


@needs("checks")
def test_a_simulation_has_each_pair_once(found, monkeypatch):
    other = finding("race", second=dataclasses.replace(LOAD, line=56))
    monkeypatch.setattr(found, "found", (FORMAL, other, dataclasses.replace(FORMAL, count=9)))
    done = symlab.simulate(PTX, ranks=2, seeds=3, races=True, **HOW)
    assert [one.severity for one in done.findings] == ["race", "formal"]
    assert [len(run.findings or ()) for run in done.runs] == [3, 3, 3]
    assert symlab.simulate(PTX, ranks=2, seeds=3, **HOW).findings is None


@pytest.mark.parametrize("how", [{"fabric": "nvshmem", "races": True}, {"races": "yes"}])
def test_what_no_world_can_be(how):
    with refused():
        symlab.world(ranks=2, **how)
