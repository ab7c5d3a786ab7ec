"""A whole GEMM of wgmma and tensor copies, in the orders and kinds of memory that there are."""

import numpy as np
import pytest

from tests.simulator.isa.gemm_program import brain, multiplied, widened
from tests.simulator.isa.products_oracle import summed

ORDERS = (
    {"schedule": "fair"},
    {"schedule": "random", "seed": 2},
    {"schedule": "adversarial", "seed": 1},
    {"schedule": "priority", "seed": 0},
    {"memory": "weak", "seed": 3},
    {"races": True},
)


@pytest.mark.parametrize("options", ORDERS, ids=str)
def test_integers_give_their_exact_product(options):
    made = np.random.default_rng(4)
    a, b = (brain(made.integers(-6, 7, shape)) for shape in ((128, 192), (256, 192)))
    found, outcome = multiplied(a, b, **options)
    assert np.array_equal(found, widened(a) @ widened(b).T)
    assert "races" not in options or outcome.world.findings == ()


def test_normal_data_give_the_bits_of_one_sum_an_instruction():
    made = np.random.default_rng(5)
    a, b = (brain(made.standard_normal(shape)) for shape in ((64, 128), (256, 128)))
    found, _ = multiplied(a, b)
    for row, column in zip(made.integers(0, 64, 40), made.integers(0, 256, 40), strict=True):
        code = 0
        for low in range(0, 128, 16):
            pairs = list(zip(a[row, low : low + 16].tolist(), b[column, low : low + 16].tolist(), strict=True))
            code = summed(pairs, code, ("f32", "bf16", "bf16"), 25, 23)
        assert found[row, column].view(np.uint32) == code
