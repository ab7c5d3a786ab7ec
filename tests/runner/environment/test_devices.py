"""Nothing in the check makes a tensor on the host behind a GPU's back: tensors that are made say where."""

import dataclasses

import pytest
import torch
from torch.overrides import TorchFunctionMode

from cases.case import Case
from cases.dtypes import FLOATS, INTEGERS, NONE, accumulators_of, reductions_of
from kernels.baselines import find_baseline
from kernels.catalogue import find
from runner.case import inputs, reference
from runner.case.check import check_rank
from runner.case.inputs import make_input

MAKERS = {torch.tensor, torch.zeros, torch.ones, torch.full, torch.empty, torch.arange, torch.linspace, torch.eye}


class NoHiddenTensors(TorchFunctionMode):
    """Refuses calls that make a tensor on the default device."""

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        if function in MAKERS and "device" not in (keywords or {}):
            raise AssertionError(f"torch.{function.__name__} makes a tensor on the default device")
        return function(*arguments, **(keywords or {}))


def test_the_guard_sees_a_hidden_tensor():
    with NoHiddenTensors(), pytest.raises(AssertionError, match="torch.zeros"):
        torch.zeros(3)


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "multimem_one_shot", "nccl"])
@pytest.mark.parametrize("kind", ["exact", "normal", "wide"])
def test_the_check_makes_no_tensor_on_the_default_device(algorithm, kind):
    """wide: float32 of all magnitudes, whose sums float64 can't hold, with infinities and NaN."""
    promise = find_baseline(algorithm) or find(f"all_reduce/{algorithm}")
    accumulator = "native" if algorithm != "nccl" else "library"
    placement, inputs_kind = "in_place", "normal" if kind == "wide" else kind
    case = Case("all_reduce", algorithm, "float32", accumulator, "sum", 4000, 4, placement, inputs_kind)
    parts = [make_input(case, rank, case.numel) for rank in range(4)]
    if kind == "wide":
        scales = torch.logspace(-40, 35, case.numel)
        parts = [part * scales.roll(250 * rank) for rank, part in enumerate(parts)]
        parts[1][7], parts[2][9], parts[3][9] = float("nan"), float("inf"), float("-inf")
    reference.forget_references()
    output = parts[0] + parts[1] + parts[2] + parts[3]
    if promise.owner is not None:
        owner = promise.owner(case, 0)  # made on the host, and moved by the check
        promise = dataclasses.replace(promise, owner=lambda *_: owner)
    given = parts if kind == "wide" else None
    with NoHiddenTensors():
        found = check_rank(case, promise, 0, [output], (), inputs=given)
    assert found.elements == 1000
    inputs.forget_inputs()
    reference.forget_references()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("algorithm", ["one_shot", "multimem_one_shot"])
def test_no_dtype_or_reduction_does(dtype, algorithm):
    """With edge inputs, which take every way through bounds and exact sums; wrong results are looked at, too."""
    promise = dataclasses.replace(find(f"all_reduce/{algorithm}"), positive_zero="results")
    for reduction in reductions_of(dtype):
        accumulator = accumulators_of(dtype, reduction)[-1]
        case = Case("all_reduce", algorithm, dtype, accumulator, reduction, 960, 3, inputs="edge")
        output = make_input(case, 0, case.numel)
        reference.forget_references()
        with NoHiddenTensors():
            found = check_rank(case, promise, 0, [output], ())
        assert found.wrong > 0
    moved = Case("broadcast", "push", dtype, NONE, NONE, 960, 3, inputs="edge")
    data = make_input(moved, 0, moved.numel)
    with NoHiddenTensors():
        assert check_rank(moved, find("broadcast/push"), 1, [data], ()).wrong == 0
    inputs.forget_inputs()
    reference.forget_references()
