"""The variants that stand for a kernel's code: what they cover, and that the committed codes are those of today."""

import dataclasses

import pytest

from cases.ops import collective
from kernels.catalogue import SPECS, find
from kernels.matrix import codes, variants
from kernels.matrix.codes import Code, code_from, code_over
from kernels.matrix.matrix import Row
from kernels.spec import refuses
from memory.fabric import Traits
from tests.golden import refused

PEERS = find("barrier/peers")


def covered(spec, every):
    """What variants cover: each value of each choice in each world, each data type with each of its accumulators."""
    found = set()
    for one in variants.variants(spec, every):
        choices = spec.choices(one.case)
        found |= {(choices["world_size"], name, value) for name, value in choices.items()}
        found |= {("pair", choices["world_size"], choices.get("dtype"), choices.get("accumulator")), one.arch}
    return found


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_they_cover_each_choice_of_a_kernel_and_none_is_refused(spec):
    found = variants.variants(spec)
    assert covered(spec, every=False) == covered(spec, every=True)
    assert {one.case.reduction for one in found} == {cell[2] for cell in Row(spec, ()).taken}
    assert {one.case.world_size for one in found} == {2, 4}
    codes_of_them = {(spec.variant(one.case), one.arch) for one in found}
    assert len(found) == len(codes_of_them) == len({one.label for one in found})
    for one in variants.variants(spec, every=True):
        traits = Traits("ideal", one.arch, one.case.world_size, 1 << 40, True)
        assert refuses(spec, collective(spec.op), one.case, traits) is None, one.label


def test_they_take_every_step_and_placement_that_the_sizes_reach():
    bulk = {one.case.placement for one in variants.variants(find("broadcast/bulk"))}
    assert bulk == {"out_of_place", "in_place"}
    pushes = {
        find("all_reduce/two_shot").choices(one.case)["push"] for one in variants.variants(find("all_reduce/two_shot"))
    }
    assert pushes == {False, True}
    assert {one.arch for one in variants.variants(find("all_reduce/multimem_one_shot"))} == {"sm_90a", "sm_100a"}
    assert {one.case.size_bytes for one in variants.variants(PEERS)} == {4}


def test_every_pair_and_every_reduction_is_covered():
    cells = [("a", "x", "sum"), ("a", "x", "avg"), ("a", "y", "sum"), ("b", "x", "sum"), ("c", "z", "min")]
    assert variants.covering(cells) == [
        ("a", "x", "sum"),
        ("a", "y", "sum"),
        ("b", "x", "sum"),
        ("c", "z", "min"),
        ("a", "x", "avg"),
    ]


def test_a_code_is_over_labels_and_digests():
    code = code_over({"b": "2", "a": "1"})
    assert code == code_over({"a": "1", "b": "2"})
    assert len({code, code_over({"a": "2", "b": "1"}), code_over({"a": "1"}), code_over({"c": "1", "b": "2"})}) == 4
    assert code_from({"b": "2", "a": "1"}) == Code(2, code, "b", "2")


def test_what_is_written_is_read(tmp_path):
    found = {"all_reduce/x": Code(2, "sha256:1", "label", "sha256:2")}
    path = tmp_path / "codes.json"
    path.write_text(codes.written(found))
    assert codes.codes(path) == found


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"a": {"code": "x"}}',
        '{"a": {"variants": "1", "code": "1", "sample": "2", "sample_code": "3"}}',
        '{"a": {"variants": 1, "code": 1, "sample": "2", "sample_code": "3"}}',
        None,
    ],
)
def test_another_files_content_is_refused_by_name(tmp_path, text):
    path = tmp_path / "codes.json"
    if text is not None:
        path.write_text(text)
    with refused():
        codes.codes(path)


def test_the_committed_codes_have_every_kernel_and_its_variants():
    known = codes.codes()
    assert list(known) == sorted(spec.name for spec in SPECS)
    for spec in SPECS:
        found = variants.variants(spec)
        assert (known[spec.name].variants, known[spec.name].sample) == (len(found), found[0].label), spec.name


def test_a_kernel_compiles_to_its_committed_code(tmp_path):
    assert variants.code_of(PEERS, tmp_path) == codes.codes()[PEERS.name]
    liar = dataclasses.replace(find("barrier/multimem"), op="barrier", algorithm="peers")
    other = variants.code_from(variants.compiled(liar, variants.variants(find("barrier/multimem")), tmp_path / "liars"))
    assert other.code != codes.codes()[PEERS.name].code
