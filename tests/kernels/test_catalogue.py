from __future__ import annotations

import importlib

from cases.ops import OPS, collective
from kernels.catalogue import NAMES, SPECS, find
from kernels.sources import ROOT
from tests.golden import refused


def test_a_name_is_the_key_the_module_and_the_algorithm() -> None:
    assert tuple(spec.name for spec in SPECS) == NAMES
    assert len(set(NAMES)) == len(NAMES)
    for spec in SPECS:
        assert find(spec.name) is spec
        assert importlib.import_module(f"kernels.{spec.op}.{spec.algorithm}").SPEC is spec
        assert spec.op in OPS


def test_an_unknown_kernel_is_told_the_near_ones() -> None:
    with refused():
        find("all_reduce/oneshot")
    with refused():
        find("x")


def test_every_kernel_begins_with_its_own_file() -> None:
    for spec in SPECS:
        assert spec.files[0] == str(ROOT / "kernels" / spec.op / f"{spec.algorithm}.py")


def test_kernels_are_in_place_only_where_the_op_is() -> None:
    for spec in SPECS:
        assert "in_place" not in spec.placements or collective(spec.op).in_place is not None
