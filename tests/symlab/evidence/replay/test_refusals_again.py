"""Refusals on GPUs are decided again from the record: which agree, which are none, which can't be known."""

import dataclasses
from pathlib import Path

import pytest

from cases.record.record import Status
from cases.refusal import Refusal
from reports.record.bundle import read
from runner.environment.repository import source_digests
from symlab.evidence.replay.refusals_again import refusals

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def published():
    return list(read([ROOT / "reports" / "published" / "h200-x2"]))


@pytest.fixture(scope="module")
def sources():
    return source_digests(ROOT)


def refused(record, kernels, **changes):
    environment = dataclasses.replace(record.environment, sources={"kernels": kernels})
    reason = f"{record.case.algorithm} has no all_reduce of {record.case.size_bytes} B"
    ended = {"status": Status.REFUSED, "check": None, "timing": None, "kernel": None, "library": "", "reason": reason}
    return dataclasses.replace(record, **{**ended, "environment": environment, **changes})


def test_every_published_refusal_is_one_here(published, sources):
    """Limits of kernels that rose since make a refusal incomparable; all others are decided as they were."""
    found = refusals(published, sources)
    assert len(found.agree) + len(found.unsure) == sum(one.status is Status.REFUSED for one in published)
    assert len(found.agree) > 100
    assert found.different == []
    assert all(why.endswith("by kernels that changed since") for _, why in found.unsure)


@pytest.mark.parametrize("algorithm", ["nccl", "one_shot", "torch/one_shot"])
def test_a_refusal_that_never_was_is_a_difference(algorithm, published, sources):
    first = next(one for one in published if one.case.algorithm == algorithm and one.status is Status.PASSED)
    ((case, what),) = refusals([refused(first, sources["kernels"])], sources).different
    assert (case, what) == (first.id, "it is REFUSED in the record, and nothing refuses it here")
    ((_, why),) = refusals([refused(first, "sha256:0")], sources).unsure
    assert why.endswith("by kernels that changed since")
    unreached = Refusal("fabric", "needs every rank's memory mapped", "rank 0 can't reach rank 1")
    ((_, why),) = refusals([refused(first, sources["kernels"], refusal=unreached)], sources).unsure
    assert why == "the record does not say which ranks reach each other"


def test_what_was_not_installed_there_may_be_here(published, sources):
    first = next(one for one in published if one.case.algorithm == "nccl" and one.status is Status.PASSED)
    absent = Refusal("baselines", "nccl is unavailable", "it is not installed")
    made = refused(first, sources["kernels"], refusal=absent)
    found = refusals([made], sources)
    ((_, why),) = found.unsure
    assert why.endswith("nothing refuses it here, where other libraries are installed")
    assert found.different == []


def test_what_is_unknown_here_is_named(published, sources):
    first = next(one for one in published if one.case.algorithm == "nccl")
    case = dataclasses.replace(first.case, algorithm="gone")
    made = refused(dataclasses.replace(first, case=case, id=first.id.replace("nccl", "gone")), sources["kernels"])
    ((_, why),) = refusals([made], sources).unsure
    assert "gone" in why
