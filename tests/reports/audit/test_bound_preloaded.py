"""An NCCL that was preloaded is no contradiction to the installed package's version."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cases.record.record import Record
from reports.audit.bound_machine import _versions
from tests.reports.synthetic import record, with_environment, with_request

PACKAGES = {"nvidia-nccl-cu13": "2.28.9", "nvidia-nvshmem-cu13": "3.8.0"}


def another(library: str = "NCCL 2.32.3") -> Record:
    return with_environment(replace(record("nccl"), library=library), packages=PACKAGES)


def said(made: Record) -> list[str]:
    return [sentence for sentence in _versions(made) if "NCCL" in sentence]


def test_a_version_that_nothing_explains_is_found() -> None:
    assert said(another()) == ["NCCL 2.32.3 is recorded, and the package nvidia-nccl-cu13 2.28.9"]
    assert said(another("NCCL 2.28.9 (Ring)")) == []


@pytest.mark.parametrize(
    ("preload", "explains"),
    [("/opt/new/libnccl.so.2", True), ("/opt/x.so:/opt/libnccl.so.2.32.3", True), ("x.so", False)],
)
def test_the_variable_that_preloads_libraries_explains_it(preload: str, explains: bool) -> None:
    made = with_environment(another(), variables={"allowed": {"LD_PRELOAD": preload}, "withheld": 3})
    assert (said(made) == []) is explains


def test_a_version_of_sglang_that_is_not_the_packages_is_found() -> None:
    made = with_environment(replace(record("nccl"), library="SGLang 0.5.14 (nvcc 13.0)"), packages={"sglang": "0.5.13"})
    assert list(_versions(made)) == ["SGLang 0.5.14 (nvcc 13.0) is recorded, and the package sglang 0.5.13"]


def test_the_key_explains_it() -> None:
    assert said(with_request(another(), configuration={"library": {"nccl": "/opt/libnccl.so.2"}})) == []
