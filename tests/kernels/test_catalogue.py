from __future__ import annotations

import importlib

import pytest

from kernels.catalogue import OPS, SPECS, collective, find
from kernels.compile import ROOT


def test_a_name_is_the_key_the_module_and_the_algorithm() -> None:
    assert [spec.name for spec in SPECS] == [
        "all_reduce/one_shot",
        "all_reduce/two_shot",
        "all_reduce/multimem_one_shot",
        "all_reduce/multimem_two_shot",
    ]
    for spec in SPECS:
        assert find(spec.name) is spec
        assert importlib.import_module(f"kernels.{spec.op}.{spec.algorithm}").SPEC is spec
        assert spec.op in OPS


def test_an_unknown_kernel_is_told_the_near_ones() -> None:
    with pytest.raises(ValueError, match=r"'all_reduce/oneshot': did you mean all_reduce/one_shot or "):
        find("all_reduce/oneshot")
    with pytest.raises(ValueError, match=r"'x': there is all_reduce/one_shot, .*, all_reduce/multimem_two_shot$"):
        find("x")


def test_an_unknown_op_is_told_the_near_ones() -> None:
    assert collective("all_reduce").op == "all_reduce"
    with pytest.raises(ValueError, match=r"unknown op 'allreduce': did you mean all_reduce\?"):
        collective("allreduce")


def test_all_sources_exist() -> None:
    for spec in SPECS:
        assert [source for source in spec.sources if not (ROOT / source).is_file()] == []
