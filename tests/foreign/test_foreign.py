"""Kernels of others do what they promise, and tests/foreign/table.md is as the command writes it now."""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import simulator
import symlab
from tests.foreign.__main__ import TABLE, rows
from tests.foreign.cases import outcome
from tests.foreign.catalogue import KERNELS
from tests.foreign.environment import toolkit

pytestmark = pytest.mark.foreign
README = (Path(simulator.__file__).parent / "README.md").read_text(encoding="utf-8")
ROWS = rows(TABLE.read_text(encoding="utf-8"))
NOT_SEEN = {
    "NVSHMEM: put_signal of each thread and signal_wait_until": "it reads no data behind its signal that could be late",
    "FlashInfer: vLLM's all_reduce, two stages, bfloat16": "weak memory has no late loads",
}
"""Why no order can show a kernel's race."""


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_kernel_keeps_its_promise_and_the_table_says_what_came_of_it(kernel):
    if kernel.absent:
        pytest.skip(kernel.absent)
    found = outcome(kernel)
    assert found.verdict == kernel.promise
    assert found.row in ROWS, "python -m tests.foreign --write writes the table"


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [one for one in KERNELS if one.race], ids=str)
def test_a_race_that_is_found_in_the_fair_order_is_seen_in_another(kernel):
    if kernel.absent:
        pytest.skip(kernel.absent)
    assert f"\n- {kernel.race}: " in README
    if reason := NOT_SEEN.get(kernel.name):
        pytest.skip(reason)
    orders = [("adversarial", "strong"), ("random", "weak")] if kernel.race == "flag" else [("random", "weak")]
    for schedule, memory in orders:
        assert any(_is_wrong(kernel, seed, schedule=schedule, memory=memory) for seed in range(40)), (schedule, memory)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [one for one in KERNELS if one.assumption], ids=str)
def test_an_assumption_makes_right_what_is_wrong_by_ptx(kernel):
    if kernel.absent:
        pytest.skip(kernel.absent)
    assert f"\n- {kernel.assumption}: " in README
    if reason := NOT_SEEN.get(kernel.name):
        pytest.skip(reason)
    assert any(_is_wrong(kernel, seed, memory="weak") for seed in range(4))
    assert not any(_is_wrong(kernel, seed, memory="weak", assumptions=[kernel.assumption]) for seed in range(4))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [one for one in KERNELS if ", by " in one.promise], ids=str)
def test_what_a_verdict_rests_on_is_needed(kernel):
    if kernel.absent:
        pytest.skip(kernel.absent)
    case = kernel.case(2)
    assert case.launch["assumptions"] == [kernel.promise.rpartition(" ")[2]]
    without = replace(case, launch={**case.launch, "assumptions": []})
    wrong = 0
    for run in without.simulated(2, schedule="random", seeds=6).runs:
        try:
            without.check(run.outputs)
        except AssertionError:
            wrong += 1
    assert wrong


def _is_wrong(kernel, seed, **order):
    case = kernel.case(2)
    try:
        case.check(case.simulated(2, seeds=[seed], **order).outputs)
    except (AssertionError, symlab.WorldFailure):
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [one for one in KERNELS if one.promise[:11] != "unsupported"], ids=str)
def test_symlab_check_finds_nothing_and_the_assembler_takes_the_module(kernel, monkeypatch):
    if kernel.absent:
        pytest.skip(kernel.absent)
    monkeypatch.setenv("PATH", str(toolkit()), prepend=os.pathsep)
    text = kernel.case(2).module.ptx
    said = checked(text)
    assert said[0] == 0, said[1]
    assert "simulator: has all forms" in said[1]
    assert re.search(r"^ptxas [\d.]+: assembles it for sm_(80|90a?)$", said[1], re.MULTILINE)


@cache
def checked(text):
    """Exit code and output of `symlab check` on a module; many kernels share one."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(text)
        file.flush()
        command = [sys.executable, "-m", "symlab", "check", file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_table_has_every_kernel_once():
    assert [row.split(" | ")[0].removeprefix("| ") for row in ROWS] == [kernel.name for kernel in KERNELS]
