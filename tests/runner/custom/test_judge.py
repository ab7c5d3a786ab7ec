"""Outputs of custom kernels against what the reference gave: bits, tolerances, NaN, and the first wrong element."""

import itertools
import math

import pytest
import torch

from memory.fabric import Launch
from runner.custom.contents import inputs_of
from runner.custom.judge import judged
from runner.custom.nouns import BufferSpec, CustomSpec, Fill, Tolerance
from runner.custom.program import CustomOutcome

BUFFERS = (BufferSpec("first", "float32", (2, 2), fill=Fill.rank), BufferSpec("second", "int32", (3,)))


def spec(tolerance=None):
    return CustomSpec("mine", Launch(1, 1), BUFFERS, (), tolerance=tolerance or Tolerance())


def outcomes(first, second, faults=()):
    """Two launches on two ranks; rank 1 has these outputs, rank 0 the right ones."""
    right = {"first": torch.ones(2, 2), "second": torch.arange(3, dtype=torch.int32)}
    mine = {
        "first": torch.tensor(first, dtype=torch.float32).view(2, 2),
        "second": torch.tensor(second, dtype=torch.int32),
    }
    return [CustomOutcome(0, (right, right), ()), CustomOutcome(1, (mine, mine), faults)]


EXPECTED = tuple({"first": torch.ones(2, 2), "second": torch.arange(3, dtype=torch.int32)} for _ in range(2))
INPUTS = inputs_of(spec(), 2, 0)


def test_the_right_bits_pass_and_a_guard_that_was_written_to_is_a_fault():
    found = judged(spec(), INPUTS, EXPECTED, outcomes([1, 1, 1, 1], [0, 1, 2]))
    assert (found.check.method, found.check.wrong, found.check.elements) == ("bitwise", 0, 28)
    assert (found.check.faults, found.buffer) == ((), "")
    assert len(set(found.check.input_digests)) == 2, "each rank's own"
    found = judged(spec(), INPUTS, EXPECTED, outcomes([1, 1, 1, 1], [0, 1, 2], ("first's guard after ..",)))
    assert found.check.faults == ("rank 1: first's guard after ..",)


@pytest.mark.parametrize("tolerance", [Tolerance(), Tolerance(absolute=9)])
def test_the_first_wrong_element_is_named_with_its_buffer(tolerance):
    """Integers have no tolerance."""
    found = judged(spec(tolerance), INPUTS, EXPECTED, outcomes([1, 1, 1, 1], [0, 7, 2]))
    at = found.check.first_mismatch
    assert (found.buffer, at.rank, at.launch, at.index, at.expected, at.actual) == ("second", 1, 0, 1, 1.0, 7.0)
    assert (found.check.wrong, at.expected_bits, at.actual_bits) == (2, "0x00000001", "0x00000007")


def test_the_last_bit_counts_unless_a_tolerance_permits_it():
    near = [1.0, 1.0, 1.0, math.nextafter(1.0, 2.0) + 1e-6]
    assert judged(spec(), INPUTS, EXPECTED, outcomes(near, [0, 1, 2])).check.wrong == 2
    found = judged(spec(Tolerance(relative=1e-5)), INPUTS, EXPECTED, outcomes(near, [0, 1, 2])).check
    assert (found.method, found.wrong, found.bound) == ("bound", 0, "0 + 1e-05 * |expected|")
    assert 0 < found.bound_used < 1
    tight = judged(spec(Tolerance(absolute=1e-7)), INPUTS, EXPECTED, outcomes(near, [0, 1, 2])).check
    assert (tight.wrong, bool(tight.faults)) == (2, True)


@pytest.mark.parametrize("tolerance", [Tolerance(), Tolerance(relative=1.0)])
def test_what_is_not_finite_equals_itself_alone(tolerance):
    for expected, actual in itertools.product((math.nan, math.inf, -math.inf, 3e38), repeat=2):
        special = {**EXPECTED[1], "first": torch.tensor([[expected, 1.0], [1.0, 1.0]])}
        found = judged(spec(tolerance), INPUTS, (EXPECTED[0], special), outcomes([actual, 1, 1, 1], [0, 1, 2]))
        assert found.check.wrong == (0 if str(expected) == str(actual) else 2), (expected, actual)


def test_launches_that_differ_are_a_fault_where_bits_are_promised():
    one, two = outcomes([1, 1, 1, 1], [0, 1, 2])
    other = {**two.outputs[0], "first": torch.full((2, 2), 1.0 + 1e-6)}
    differing = CustomOutcome(1, (two.outputs[0], other), ())
    assert not judged(spec(Tolerance(relative=1e-3)), INPUTS, EXPECTED, [one, differing]).check.faults
    assert judged(spec(), INPUTS, EXPECTED, [one, differing]).check.launches_equal is False


def test_a_rank_of_which_nothing_is_compared():
    found = judged(spec(), INPUTS, (EXPECTED[0], {}), outcomes([9, 9, 9, 9], [9, 9, 9]))
    assert (found.check.wrong, found.check.elements) == (0, 14)
    assert found.check.output_digests[1] == ()


def test_bytes_with_a_sign_are_integers():
    mine = CustomSpec("mine", Launch(1, 1), (BufferSpec("bytes", "int8", (3,), fill=Fill.random),), ())
    right, wrong = (torch.tensor(values, dtype=torch.int8) for values in ([1, -2, -128], [1, -2, 127]))
    found = judged(mine, inputs_of(mine, 1, 0), ({"bytes": right},), [CustomOutcome(0, ({"bytes": wrong},), ())])
    at = found.check.first_mismatch
    assert (found.check.wrong, at.index, at.expected, at.actual) == (1, 2, -128.0, 127.0)
