"""What is said after an unknown name."""

import pytest

from runner.request_error import near

EXPERIMENTS = ("allreduce_bf16", "allreduce_fp16", "allreduce_fp32", "allreduce_fp8", "allreduce_gpus", "barrier")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("allreduce", f"did you mean {' or '.join(EXPERIMENTS[:5])}?"),
        ("allreduce_g", "did you mean allreduce_gpus or allreduce_fp8 or allreduce_fp32?"),
        ("barier", "did you mean barrier?"),
        ("al", f"known: {', '.join(EXPERIMENTS)}"),
    ],
)
def test_all_names_that_begin_with_it_are_near(name, said):
    assert near(name, EXPERIMENTS) == said
