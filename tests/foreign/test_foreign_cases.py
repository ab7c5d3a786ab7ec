"""The runner of kernels of others tells a wrong result, a fault and a missing form from a promise that was kept."""

from dataclasses import replace

import pytest
import torch

from tests.foreign.__main__ import page, rows
from tests.foreign.cases import BITWISE, HEAD, Case, Foreign, held, outcome
from tests.foreign.environment import ENVIRONMENT, LOCK, Module, absent, versions
from tests.golden import same_text
from tests.rooms import needs

PTX = """
.version 8.0
.target sm_90
.address_size 64
.entry note(.param .u64 out, .param .u32 rank) {
  .reg .b64 %d; .reg .b32 %r; .reg .pred %p;
  ld.param.u64 %d, [out]; ld.param.u32 %r, [rank];
  BODY
  st.global.u32 [%d], %r; ret;
}
"""
PACKAGE = "triton"


def kernel(body, check):
    launch = {"grid": 1, "block": 1, "buffers": {"out": (1, torch.int32)}, "arguments": ["out", ("u32", "rank")]}
    module = Module(PTX.replace("BODY", body), {})
    return Foreign("noted", PACKAGE, lambda ranks: Case(module, launch, check))


def rank_is_noted(outputs):
    for rank, out in enumerate(outputs["out"]):
        held("out", out, torch.tensor([rank], dtype=torch.int32), rank)


@needs("checks")
def test_a_kept_promise_is_the_verdict():
    found = outcome(kernel("", rank_is_noted))
    assert found.verdict == BITWISE
    assert len(found.steps) == 3
    steps = " / ".join(map(str, found.steps))
    package = f"{PACKAGE} {versions()[PACKAGE]}"
    assert found.row == f"| noted | {package} | 2, 4, 8 | fair, 3 random | {steps} | none | bit for bit |"


@pytest.mark.slow
def test_a_race_that_is_not_known_is_told_and_so_is_a_known_one_that_is_gone():
    clean = kernel("", rank_is_noted)
    racing = replace(clean, case=racing_case)
    assert outcome(racing).verdict.startswith("FAILED: race: ")
    assert outcome(replace(racing, race="known")).races == "known"
    assert outcome(replace(clean, race="known")).verdict == "FAILED: no race is found, though one is known"


def racing_case(ranks):
    """Two blocks store to one word."""
    case = kernel("", rank_is_noted).case(ranks)
    return replace(case, launch={**case.launch, "grid": 2})


NEVER = "setp.eq.u32 %p, 0, 1; @%p tcgen05.shift.cta_group::1.down [%r]; @%p frobnicate.u32 %r, 1;"


@needs("checks")
@pytest.mark.parametrize("body", ["add.u32 %r, %r, 1;", "add.u64 %d, %d, 4096;", NEVER], ids=["wrong", "fault", "form"])
def test_a_wrong_result_a_fault_and_missing_forms_are_told(body):
    """Forms that the simulator does not have also where they never run."""
    found = outcome(kernel(body, rank_is_noted))
    assert found.row.endswith(f" | {found.verdict} |")
    same_text(found.verdict)


def test_a_kind_a_shape_or_a_sign_of_zero_that_differs_is_not_held():
    for other in (torch.tensor([0.0, -0.0]), torch.tensor([0.0]), torch.tensor([0, 0], dtype=torch.int32)):
        with pytest.raises(AssertionError, match="on rank 1 is"):
            held("out", other, torch.zeros(2), 1)


@needs("checks")
def test_the_table_is_written_and_read_alike():
    found = outcome(kernel("", rank_is_noted))
    text = page([found])
    assert text.endswith(f"\n\n{HEAD}\n{found.row}\n")
    assert rows(text) == [found.row]


def test_the_environment_has_the_versions_that_the_file_names_or_says_what_to_do():
    reason = absent()
    assert reason == "" or reason.endswith("(make foreign)")
    if not reason:
        assert (ENVIRONMENT / ".installed").read_text(encoding="utf-8") == LOCK.read_text(encoding="utf-8")
