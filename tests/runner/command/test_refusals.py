"""What is refused before anything runs: the same as a world refuses."""

import pytest

from cases.ops import COLLECTIVES, collective
from kernels.spec import KernelSpec, refuses
from runner.__main__ import main
from runner.case.cases import cases_of
from runner.case.contestant import spec_for
from runner.case.expected import expected_refusal
from runner.command.plan import prepare
from runner.command.unused_keys import unused_keys
from runner.request.compose import compose_jobs, hydra_over
from runner.world.fabrics import HostOffer
from simulator.world import SimulatedWorld, SimulatorOptions
from tests.golden import same_text
from tests.runner.conftest import asked, on_its_fabric

GREEDY = """
from dataclasses import replace
from kernels.catalogue import find
from memory.fabric import Launch
OURS = find("all_reduce/one_shot")
SPEC = replace(OURS, algorithm="greedy", launch=lambda case: Launch(1, 128, shared_bytes=(227 << 10) + 1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("multicast", ["true", "false"])
def test_a_simulated_world_refuses_what_was_expected(multicast):
    line = f"algorithms=all sizes=[0,1K,1M] fabric.multicast={multicast} world_size=4 fabric=simulator"
    requests = map(on_its_fabric, asked(*(f"op={one.op} {line}" for one in COLLECTIVES)))
    world = SimulatedWorld(4, SimulatorOptions(multicast=multicast == "true"))
    found = set()
    for request in requests:
        for case in cases_of(request):
            spec = spec_for(case)
            assert isinstance(spec, KernelSpec)
            expected = expected_refusal(case, request.fabric)
            assert expected == refuses(spec, collective(case.op), case, world.traits)
            found.add(expected.key if expected else "")
    assert {"", "sizes"} <= found
    assert ("fabric.multicast" in found) == (multicast == "false")


@pytest.mark.parametrize(
    "arguments",
    [
        "op=barrier algorithms=all sizes=[1K]",
        "algorithms=[ll] sizes=[1M]",
        "algorithms=[nccl] sizes=[1K]",
        "-m algorithms=[lamport] dtype=int32,int64 sizes=[1K]",
        "sizes=[1000000G]",
    ],
)
def test_a_command_of_which_nothing_can_run_is_refused_as_a_whole(symlab, script, arguments):
    done = symlab(*arguments.split(), "fabric=simulator")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    same_text(done.err)
    assert list(done.folder.iterdir()) == []
    assert script.worlds == []


def test_a_users_kernel_beyond_the_shared_memory_of_a_block_is_refused_before_it_runs(symlab, script, tmp_path):
    (tmp_path / "greedy.py").write_text(GREEDY, encoding="utf-8")
    done = symlab("algorithms=[greedy.py:SPEC]", "sizes=[1K]", "fabric=simulator")
    assert (done.code, done.err.count("\n")) == (2, 1)
    same_text(done.err)
    assert script.worlds == []


EIGHT = HostOffer(gpu_count=8, driver_problem="", gpu_extra=True)
UNUSED = {
    "fabric.seed=3": ["fabric.seed"],
    "fabric.seed=3 fabric.schedule=random": [],
    "tuned=table.json": ["tuned"],
    "stress_seeds=3": ["stress_seeds"],
    "stress_seeds=3 stress=late_rank": [],
    "op=barrier inputs=exact": ["inputs"],
    "track.experiment=mine": ["track.experiment"],
    "library.nccl_graph_mixing=false": ["library.nccl_graph_mixing"],
    "hydra.run.dir=here": ["hydra.run.dir"],
    "timing.mode=eager": ["timing.*"],
    "timing.mode=graph": ["timing.*"],
    "timing={samples:9}": ["timing.*"],
    "++timing.samples=9": ["timing.*"],
    "-m timing.samples=9,50": ["timing.*"],
    "timing.mode=none": [],
    "-m seed=1,2 hydra.mode=MULTIRUN": [],
}


def unused(line, machine=None):
    """What a command line says of keys without effect; machine is in place of this one. Inside hydra_over."""
    jobs = compose_jobs([one for one in line.split() if one != "-m"], "-m" in line)
    return list(unused_keys(prepare((), jobs, machine=(lambda: machine) if machine else None)))


@pytest.mark.parametrize("lines", [list(UNUSED)[:6], list(UNUSED)[6:11], list(UNUSED)[11:]])
def test_keys_without_effect_are_named(lines):
    with hydra_over():
        for line in lines:
            said = unused(f"{line} fabric=simulator track=none")
            assert [one.partition(" has no effect")[0] for one in said] == UNUSED[line]


def test_keys_without_effect_on_gpus_are_named():
    with hydra_over():
        simulators = unused("fabric=nvshmem fabric.seed=3 fabric.memory=weak", EIGHT)
        timing = unused("-m fabric=nvshmem check=false,true timing.samples=9", EIGHT)
    assert [one.partition(" has no effect")[0] for one in simulators] == ["fabric.memory", "fabric.seed"]
    assert timing == ["timing.* has no effect in 1 of 2 jobs: with check=false nothing is timed"]


@pytest.mark.slow
def test_timing_of_an_experiment_counts_as_given(symlab, capsys):
    done = symlab("+exp=barrier", "seed=1", "fabric=simulator")
    assert "timing." not in done.out
    (done.folder / "mine" / "exp").mkdir(parents=True)
    text = "# @package _global_\nsizes: [8]\nalgorithms: one_shot\ntiming: {samples: 9}\n"
    (done.folder / "mine" / "exp" / "timed.yaml").write_text(text)
    code = main(["--config-dir", "mine", "+exp=timed", "fabric=simulator", "--plan"])
    assert code == 0
    assert "timing.* has no effect: the simulator has no clock" in capsys.readouterr().out.splitlines()
