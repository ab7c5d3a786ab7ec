"""A case's inputs, what must come out, and whether given outputs are that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch

from cases.case import Case, Inputs
from cases.dtypes import DTYPES
from cases.ops import collective
from cases.record.record import Check
from kernels.spec import KernelSpec
from runner.case import inputs as generated
from runner.case.check import check_rank, merge
from runner.case.inputs import CPU
from runner.case.reference import reference_of
from symlab.describing import check_case, runner_of


def make_inputs(case: Case) -> tuple[torch.Tensor, ...]:
    """Return the inputs of a case by rank: 1-D host tensors of the case's dtype, the same in every process.

    Their length is what the op takes from one rank: for all_gather the chunk, for the others the whole buffer; for
    all_to_all_v twice the size, of which a rank sends as much as its counts say.

    >>> import symlab
    >>> inputs = symlab.make_inputs(symlab.case("all_reduce/one_shot", size_bytes="1K", ranks=2))
    >>> len(inputs), inputs[0].shape, inputs[0].dtype
    (2, torch.Size([256]), torch.float32)
    """
    check_case(case)
    numel = collective(case.op).elements(case)[0]
    return tuple(one.clone() for one in generated.make_inputs(case, range(case.world_size), numel))


def make_reference(
    case: Case, inputs: Sequence[torch.Tensor] | None = None, *, kernel: str | KernelSpec | None = None
) -> tuple[torch.Tensor | None, ...]:
    """Return what must come out by rank: 1-D host tensors of the case's dtype; None for a rank that gets no output.

    Where the kernel promises an order of addition, these are the bits that must come out (any NaN equals any other).
    Where it promises none, it is the exact result rounded once, and outputs may lie within an error bound of that:
    check() judges by it. inputs: one tensor a rank; None: those of make_inputs. kernel: as compile() takes it.

    Raises ValueError for inputs that are not the case's.

    >>> import symlab, torch
    >>> case = symlab.case("all_reduce/one_shot", size_bytes=8, ranks=2)
    >>> symlab.make_reference(case, [torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])])[0]
    tensor([11., 22.])
    """
    spec, op = runner_of(case, kernel), collective(case.op)
    case, given = with_inputs(case, inputs)
    found: list[torch.Tensor | None] = []
    for rank in range(case.world_size):
        if not op.gives(case, rank):
            found.append(None)
            continue
        reference = reference_of(case, spec, op, rank, CPU, given)
        found.append((reference.nearest if reference.expected is None else reference.expected).clone())
    return tuple(found)


def check(
    case: Case,
    outputs: Sequence[torch.Tensor | None],
    inputs: Sequence[torch.Tensor] | None = None,
    *,
    kernel: str | KernelSpec | None = None,
) -> Check:
    """Judge outputs of a case as the runner does: by the bits, by the kernel's order of addition, or by an error bound.

    outputs: one 1-D tensor of the case's dtype a rank; None for a rank that the op gives no output. inputs and kernel:
    as make_reference takes them.

    The result's `faults` says what is wrong, and is empty if nothing is. Among its other attributes: `method` ("bytes",
    "bitwise", "bitwise_fold" or "bound"), `elements` (number compared), `wrong`, `first_mismatch` (rank, index, both
    values), `max_ulp_error`, `max_absolute_error`, `bound_used` (share of the permitted error).

    Raises ValueError for outputs or inputs of another number, dtype or length than the case's.

    >>> import symlab
    >>> case = symlab.case("all_reduce/one_shot", size_bytes="1K", ranks=2)
    >>> outputs = symlab.make_reference(case)
    >>> symlab.check(case, outputs).faults
    ()
    >>> outputs[1][7] += 1
    >>> symlab.check(case, outputs).faults[0]
    '1 of 512 elements are wrong; first at rank 1, index 7, ...'
    """
    spec, op = runner_of(case, kernel), collective(case.op)
    case, given = with_inputs(case, inputs)
    wanted = [op.received(case, rank) for rank in range(case.world_size)]
    gives = [op.gives(case, rank) for rank in range(case.world_size)]
    _check_tensors("outputs", case, outputs, wanted, gives)
    checks = [
        check_rank(case, spec, rank, [] if output is None else [output], (), inputs=given)
        for rank, output in enumerate(outputs)
    ]
    return merge(case, spec, checks)


def with_inputs(case: Case, inputs: Sequence[torch.Tensor] | None) -> tuple[Case, tuple[torch.Tensor, ...] | None]:
    """Return the case with given inputs, of which nothing is known: they count as "normal". ValueError if unfit.

    The tensors are copies: what is changed later does not matter.
    """
    if inputs is None:
        return case, None
    numel = collective(case.op).elements(case)[0]
    _check_tensors("inputs", case, inputs, [numel] * case.world_size, [True] * case.world_size)
    return dataclasses.replace(case, inputs=str(Inputs.normal)), tuple(one.detach().cpu().clone() for one in inputs)


def _check_tensors(
    what: str, case: Case, tensors: Sequence[torch.Tensor | None], numels: Sequence[int], wanted: Sequence[bool]
) -> None:
    """Raise ValueError unless each rank that wants a 1-D tensor has one, of its number of elements."""

    dtype = DTYPES[case.dtype]
    if len(tensors) != case.world_size:
        raise ValueError(f"{len(tensors)} tensors for {case.world_size} ranks ({what}), give one a rank")
    for rank, (one, numel, wants) in enumerate(zip(tensors, numels, wanted, strict=True)):
        if one is None and not wants:
            continue
        right = f"give a 1-D tensor of {numel} elements of {dtype}" if wants else "give None"
        if not isinstance(one, torch.Tensor):
            raise ValueError(f"rank {rank} has a {type(one).__name__} ({what}), {right}")
        if not wants or one.dtype != dtype or one.shape != (numel,):
            raise ValueError(f"rank {rank} has {tuple(one.shape)} of {one.dtype} ({what}), {right}")
