"""Assumptions beyond PTX: named, explained, declared by specs, and carried by what is compiled."""

import dataclasses
import json

import pytest

from cases.assumptions import ASSUMPTIONS, sentence_of
from cases.case import Case
from kernels.catalogue import SPECS, find
from kernels.compile import executable
from kernels.matrix.matrix import Row
from kernels.matrix.sheets import text
from runner.command.kernel_info import kernel_info
from tests.golden import refused

NAME = "vector_16"
SPEC = dataclasses.replace(find("all_reduce/one_shot"), assumptions=(NAME,))


def test_each_has_a_sentence_and_a_source():
    for name, one in ASSUMPTIONS.items():
        assert sentence_of(name) == f"{name}: {one.sentence} ({one.source})"
        assert len(one.sentence) > 20
        assert "PTX" in one.source
    with refused():
        sentence_of("luck")


@pytest.mark.parametrize("assumptions", [("luck",), NAME])
def test_a_spec_declares_only_known_ones(assumptions):
    with refused():
        dataclasses.replace(SPEC, assumptions=assumptions)


def test_only_kernels_in_lines_assume_anything():
    """A kernel that does is to be found in this list."""
    assuming = {spec.name: spec.assumptions for spec in SPECS if spec.assumptions}
    ops = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv")
    assert assuming == {f"{op}/ll128": ("warp_128",) for op in ops}
    assert "assumed of hardware beyond PTX: nothing, by any of these kernels" in text([Row(SPEC_WITHOUT, ())], ())


SPEC_WITHOUT = find("all_reduce/one_shot")


def test_they_are_listed_with_the_kernels_that_declare_them():
    said = text([Row(SPEC, ()), Row(find("all_reduce/two_shot"), ())], ())
    assert f"assumed of hardware beyond PTX: {sentence_of(NAME)}: all_reduce/one_shot\n" in said


def test_what_is_compiled_carries_them_and_the_cache_does_not(tmp_path):
    case = Case("all_reduce", "one_shot", "float32", "native", "sum", 64, 2)
    first = executable(SPEC, case, "sm_90a", tmp_path)
    (entry,) = tmp_path.iterdir()
    assert "assumptions" not in json.loads(entry.read_text())["executable"]
    again, without = executable(SPEC, case, "sm_90a", tmp_path), executable(SPEC_WITHOUT, case, "sm_90a", tmp_path)
    assert (first.assumptions, again.assumptions, without.assumptions) == ((NAME,), (NAME,), ())
    assert first.digest == without.digest
    assert kernel_info(SPEC, case, first).assumptions == (sentence_of(NAME),)
    assert kernel_info(SPEC_WITHOUT, case, without).assumptions is None


def test_the_race_checker_knows_the_same_ones():
    report = pytest.importorskip("symlab.checks.races.report", reason="symlab/checks is not installed")
    assert set(report.ASSUMPTIONS) == set(ASSUMPTIONS)
