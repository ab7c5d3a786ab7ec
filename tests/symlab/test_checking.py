"""symlab.make_inputs, make_reference and check: the project's own judgement on tensors of one's own."""

import dataclasses

import pytest
import torch

import symlab
from cases.ops import collective
from kernels.catalogue import MATMUL_FILES, NAMES
from tests.golden import refused


def small(name, **given):
    return symlab.case(name, size_bytes=8 if name.startswith("barrier") else 96, ranks=2, **given)


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_of_every_kernel_passes_and_a_changed_bit_does_not(name):
    case = small(name)
    outputs = [None if one is None else one for one in symlab.make_reference(case)]
    assert symlab.check(case, outputs).faults == ()
    rank = next(rank for rank, one in enumerate(outputs) if one is not None)
    bits = outputs[rank].view(torch.int32)
    bits[-1] ^= 1 << 30
    found = symlab.check(case, outputs)
    assert found.wrong == 1
    assert (found.first_mismatch.rank, found.first_mismatch.index) == (rank, bits.numel() - 1)


@pytest.mark.parametrize("name", MATMUL_FILES)
def test_the_reference_of_every_matmul_is_the_product_and_a_changed_number_is_found(name):
    case = symlab.case(name, gemm=(16, 16, 24), ranks=1 if name.startswith("matmul/") else 2, inputs="exact")
    outputs, factors = symlab.make_reference(case), collective(case.op).factors(case, symlab.make_inputs(case), 0)
    assert torch.equal(outputs[0].double(), sum(a.double() @ b.double().T for a, b in factors).flatten())
    assert symlab.check(case, outputs).faults == ()
    outputs[-1][-1] += 100
    assert symlab.check(case, outputs).wrong == 1
    inexact = dataclasses.replace(case, inputs="normal")
    assert symlab.check(inexact, symlab.make_reference(inexact)).faults == ()


def test_inputs_and_references_are_copies():
    case = symlab.case("all_reduce/one_shot", size_bytes=64)
    for make in (symlab.make_inputs, symlab.make_reference):
        before = [one.clone() for one in make(case) if one is not None]
        for one in make(case):
            one.zero_()
        after = [one for one in make(case) if one is not None]
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    outputs = symlab.make_reference(case)
    inputs = list(symlab.make_inputs(case))
    assert symlab.check(case, outputs, inputs).faults == ()
    inputs[0] += 1
    assert symlab.check(case, outputs, inputs).wrong == 32, "the second call sees what the inputs are now"


@pytest.mark.parametrize(
    ("name", "method"), [("all_reduce/one_shot", "bitwise_fold"), ("all_reduce/multimem_one_shot", "bound")]
)
def test_judgement_is_by_the_kernels_promise(name, method):
    """One shot adds in the order of the ranks; the switch in none, so that its results may lie beside the exact one."""
    case = symlab.case(name, size_bytes=4, ranks=3)
    inputs = [torch.tensor([value]) for value in (1.0, 2.0**-24, 2.0**-24)]
    nearest = torch.tensor([1.0 + 2.0**-23])
    folded = torch.tensor([1.0])
    found = [symlab.check(case, [one] * 3, inputs) for one in (folded, nearest)]
    assert [one.method for one in found] == [method] * 2
    assert [bool(one.faults) for one in found] == [False, method == "bitwise_fold"]
    reference = symlab.make_reference(case, inputs)[0]
    assert reference.item() == (folded if method == "bitwise_fold" else nearest).item()


def test_one_pair_of_equal_bits_in_integers():
    case = symlab.case("all_reduce/one_shot", size_bytes=8, dtype="int32", reduction="max")
    inputs = [torch.tensor([1, 5], dtype=torch.int32), torch.tensor([3, 2], dtype=torch.int32)]
    assert [one.tolist() for one in symlab.make_reference(case, inputs) if one is not None] == [[3, 5], [3, 5]]


def test_lengths_are_those_of_the_op():
    case = symlab.case("all_gather/pull", size_bytes=64, ranks=4)
    assert [tuple(one.shape) for one in symlab.make_inputs(case)] == [(4,)] * 4
    assert [tuple(one.shape) for one in symlab.make_reference(case) if one is not None] == [(16,)] * 4
    assert collective("all_gather").counts(16, 4) == (4, 16)


@pytest.mark.parametrize(
    "outputs",
    [
        [torch.zeros(4)],
        [torch.zeros(4), None],
        [torch.zeros(4), [0.0] * 4],
        [torch.zeros(4), torch.zeros(2, 2)],
        [torch.zeros(4), torch.zeros(4).double()],
    ],
)
def test_unfit_outputs_are_value_errors(outputs):
    with refused():
        symlab.check(symlab.case("all_reduce/one_shot", size_bytes=16), outputs)


def test_an_output_of_a_rank_that_is_given_none_is_a_value_error():
    case = symlab.case("reduce/pull", size_bytes=16)
    with refused():
        symlab.check(case, [torch.zeros(4), torch.zeros(4)])
