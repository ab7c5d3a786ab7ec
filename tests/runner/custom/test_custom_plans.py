"""What is sent to the ranks of a custom job: plain values, in other processes too."""

import pickle

import pytest
import torch

from runner.custom.description import custom_job
from runner.custom.judge import judged
from runner.custom.program import run_custom
from runner.custom.running import plan_of
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions
from tests.runner.custom.own_ptx import HEAD, section, write_experiment


@pytest.fixture
def files(tmp_path):
    write_experiment(tmp_path)
    return tmp_path / "exp"


def ran(job, launches):
    """The check of a job's plan, sent as to other processes."""
    executable = job.kernel.compiled(job.spec, job.case.world_size, "sm_90a")
    plan = pickle.loads(pickle.dumps(plan_of(job, executable, seed=0, launches=launches, is_checked=True)))
    assert plan.spec.reference is None
    assert plan.brings == tuple(job.expected[0] if job.expected else ())
    world = ThreadWorld(job.case.world_size, SimulatorOptions(heap_bytes=1 << 20))
    try:
        outcomes = world.run(run_custom, plan, None)
    finally:
        world.close()
    return judged(job.spec, job.inputs, job.expected, outcomes).check


def test_a_plan_is_sent_without_its_functions_and_only_compared_buffers_come_home(files):
    ramp = {"dtype": "float32", "shape": [1000], "fill": "add_peers.py:ramp"}
    buffers = {"input": ramp, "output": {"dtype": "float32", "shape": [1000]}}
    job = custom_job(section(buffers=buffers), 2, 0, True, files)
    assert torch.equal(job.inputs[1]["input"], torch.arange(1000, dtype=torch.float32))
    assert ran(job, 2).faults == ()
    executable = job.kernel.compiled(job.spec, job.case.world_size, "sm_90a")
    assert plan_of(job, executable, seed=0, launches=2, is_checked=False).brings == ()


def test_multicast_and_a_local_buffer_are_given_as_asked(files):
    """Each rank stores a number from a local buffer, which it may read through the read-only cache, into all ranks'
    buffers by multicast."""
    ptx = f"""{HEAD.replace("8.0", "8.1").replace("sm_80", "sm_90")}
.visible .entry to_all(.param .u64 own, .param .u64 all, .param .u32 rank)
{{
	.reg .b32 %r<3>; .reg .b64 %rd<5>; .reg .f32 %f<2>;
	ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [all]; ld.param.u32 %r1, [rank];
	mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3;
	ld.global.nc.f32 %f1, [%rd1]; multimem.st.weak.global.f32 [%rd4], %f1;
	ret;
}}
"""
    (files / "to_all.ptx").write_text(ptx)
    (files / "to_all.py").write_text("import torch\ndef all_ranks(inputs):\n"
        "    return [{'all': torch.arange(len(inputs), dtype=torch.float32)} for _ in inputs]\n")  # fmt: skip
    values = {
        "kernel": "to_all.ptx:to_all",
        "launch": {"grid": 1, "block": 1},
        "buffers": {
            "own": {"dtype": "float32", "shape": [1], "symmetric": False, "fill": "rank"},
            "all": {"dtype": "float32", "shape": [3]},
        },
        "arguments": [{"address": "own"}, {"multicast": "all"}, "rank"],
        "reference": "to_all.py:all_ranks",
    }
    job = custom_job(values, 3, 0, True, files)
    assert job.spec.needs_multicast
    found = ran(job, 3)
    assert (found.faults, found.launches, found.elements) == ((), 3, 27)
