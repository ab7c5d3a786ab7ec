"""Kernels that leave outputs as they were, or write beyond them: found on every fabric, whatever the reference says."""

from dataclasses import replace

import pytest
import torch

from runner.custom.description import custom_job
from runner.custom.judge import judged
from runner.custom.program import run_custom
from runner.custom.running import plan_of
from runner.world.threads import ThreadWorld
from simulator.world import SimulatorOptions

BODIES = {
    "nothing": "ret;",
    "own": "st.global.b32 [%d], %r; ret;",
    "half": "setp.lt.u32 %p, %t, 16; @%p st.global.b32 [%d], %r; ret;",
    "bytes": "st.global.b8 [%d], %r; st.global.b8 [%d+2], %r; st.global.b8 [%d+3], %r; ret;",
    "beyond": "st.global.b32 [%d], %r; st.global.b32 [%d+128], %r; ret;",
}
"""Each of 32 threads has the address of its 32-bit element in %d, and 0xFFFFFFFF in %r."""

VALUES = {"int32": -1, "float32": float("nan")}


class Untold:
    """A simulator's fabric that can't tell what was written, as a GPU's."""

    def __init__(self, fabric):
        self.fabric = fabric
        self.never_written = lambda region: None

    def __getattr__(self, name):
        return getattr(self.fabric, name)


def run_untold(fabric, plan):
    return run_custom(Untold(fabric), plan)


def ptx():
    start = "ld.param.u64 %d, [out]; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4; add.s64 %d, %d, %o; mov.b32 %r, -1;"
    registers = ".reg .b64 %d; .reg .b64 %o; .reg .b32 %r; .reg .b32 %t; .reg .pred %p;"
    entries = (
        f".visible .entry {name}(.param .u64 out) {{ {registers} {start} {body} }}" for name, body in BODIES.items()
    )
    return "\n".join((".version 8.0\n.target sm_90\n.address_size 64", *entries)) + "\n"


def checked(folder, entry, dtype, launches, program, value=None, tolerance="bitwise"):
    """The check of a kernel on two ranks; the reference has one value in all elements."""
    (folder / "kernels.ptx").write_text(ptx())
    values = {"kernel": f"kernels.ptx:{entry}", "launch": {"grid": 1, "block": 32}, "tolerance": tolerance}
    values |= {"buffers": {"out": {"dtype": dtype, "shape": [32]}}, "arguments": [{"address": "out"}]}
    job = custom_job(values, 2, 0, False, folder)
    value = VALUES[dtype] if value is None else value
    right = {"out": torch.full((32,), value, dtype=getattr(torch, dtype))}
    plan = plan_of(job, job.kernel.compiled(job.spec, 2, "sm_90a"), seed=0, launches=launches, is_checked=True)
    world = ThreadWorld(2, SimulatorOptions(heap_bytes=1 << 20))
    try:
        outcomes = world.run(program, replace(plan, brings=("out",)), None)
    finally:
        world.close()
    return judged(job.spec, ({}, {}), (right, right), outcomes).check


@pytest.mark.parametrize("launches", [1, 2, 3])
@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("program", [run_custom, run_untold], ids=["simulator", "GPU"])
def test_elements_that_are_never_written_are_wrong(tmp_path, program, dtype, launches):
    for entry, count, first in (("nothing", 32, 0), ("half", 16, 16)):
        faults = checked(tmp_path, entry, dtype, launches, program).faults
        for rank in range(2):
            assert f"rank {rank}: {count} of 32 elements of out were never written, first index {first}" in faults
    assert checked(tmp_path, "own", dtype, launches, program).faults == (), "it writes what was there"


@pytest.mark.parametrize("program", [run_custom, run_untold], ids=["simulator", "GPU"])
def test_no_tolerance_permits_what_was_never_written_nor_one_byte_of_it(tmp_path, program):
    wide = {"absolute": 1e38}
    faults = checked(tmp_path, "nothing", "float32", 1, program, 0.0, wide).faults
    assert "rank 0: 32 of 32 elements of out were never written, first index 0" in faults
    assert checked(tmp_path, "bytes", "int32", 1, program).faults
    launches = checked(tmp_path, "own", "int32", 1, program).launches
    assert launches == (1 if program is run_custom else 2), "who can't tell launches twice"


@pytest.mark.parametrize("launches", [1, 2])
@pytest.mark.parametrize("program", [run_custom, run_untold], ids=["simulator", "GPU"])
def test_poison_stored_beyond_a_buffer_is_seen_in_each_launch(tmp_path, program, launches):
    faults = checked(tmp_path, "beyond", "int32", launches, program).faults
    for launch in range(launches):
        words = f"rank 1: out's guard after the buffer changed at byte 128 in launch {launch}: 0xff"
        assert [fault for fault in faults if fault.startswith(words) and "(128 bytes changed)" in fault], faults
