"""What each op means, on three ranks and in numbers."""

import torch

from cases.case import Case
from cases.ops import COLLECTIVES, MATMULS, collective
from tests.golden import refused, same_text


def test_an_unknown_op_is_told_the_near_ones():
    assert collective("all_reduce").op == "all_reduce"
    with refused():
        collective("allreduce")


def test_every_op_means_what_its_name_says():
    """Three ranks whose elements are their own: rank r has 10 r, 10 r + 1, .."""
    inputs = [torch.arange(6) + 10 * rank for rank in range(3)]
    everything = [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15, 20, 21, 22, 23, 24, 25]
    given = {
        "all_reduce": [one.tolist() for one in inputs],
        "reduce_scatter": [[2, 3], [12, 13], [22, 23]],
        "all_gather": [everything],
        "broadcast": [[20, 21, 22, 23, 24, 25]],
        "reduce": None,
        "all_to_all": [[2, 3, 12, 13, 22, 23]],
        "all_to_all_v": [[1, 11, 21]],  # half of each buffer is room
        "send_recv": [[0, 1, 2, 3, 4, 5]],
        "barrier": [everything],
    }
    for op in COLLECTIVES:
        found = op.outputs(inputs, 1, 2)
        assert (found and [part.tolist() for part in found]) == given[op.op], op.op
        assert op.is_for_all == (found is not None)
        if op.source is not None:
            assert found == [inputs[op.source(1, 3, 2)]], op.op
    assert collective("reduce").outputs(inputs, 2, 2) == inputs


def test_bus_factors_and_counts_and_places_are_those_of_nccl():
    """Of 24 elements on 8 ranks, in place on rank 5."""
    for op in COLLECTIVES:
        same_text(f"{op.op}: {op.bus_factor(8)}, {op.counts(24, 8)}, {op.in_place and op.in_place(24, 8, 5)}")


def test_ops_that_multiply_have_matrices_of_m_n_and_k():
    """Two ranks; all elements are their place in the rank's input, those of the second rank negative."""
    for op in MATMULS:
        case = Case(op.op, "x", "float32", "float32", "sum", 4 * 6 * 3, 2, gemm=(6, 3, 4))
        assert (case.flops, case.id.endswith("-m6n3k4")) == (144, True)
        numbers = torch.arange(op.elements(case)[0], dtype=torch.float32)
        one, other = op.factors(case, [numbers, -numbers], 1), op.factors(case, [numbers, -numbers], 0)
        assert [b.shape for _, b in (*one, *other)] == [(3, 4)] * len(one + other)
        if op.op == "all_gather_matmul":
            (a, b), whole = one[0], torch.arange(12).view(3, 4)
            assert (op.elements(case), op.product.received(case)) == ((12 + 12, 18), 12)
            assert (a.tolist(), float(b[0, 0])) == ([*whole.tolist(), *(-whole).tolist()], -12)
        elif op.op == "matmul_reduce_scatter":
            assert op.elements(case) == (24 + 12, op.product.received(case))
            assert [float(a[0, 0]) for a, _ in (*one, *other)] == [12, -12, 0, 0]
        else:
            assert op.elements(case) == (24 + 12, 18)
            assert [a.shape for a, _ in one] == [(6, 4)] * (1 if op.op == "matmul" else 2)
            assert op.product.received(case) == (0 if op.op == "matmul" else 18)
