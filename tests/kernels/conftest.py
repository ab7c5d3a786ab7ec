"""What the tests of kernels share: cases, one compile cache a session, PTX as opcodes, launches on simulated ranks."""

from collections.abc import Callable

import pytest

from cases.case import Case
from cases.dtypes import NONE
from cases.ops import collective
from kernels.compile import executable
from kernels.spec import KernelSpec
from memory.fabric import Executable
from tests.kernels.launching import count_opcodes

Compiled = Callable[[KernelSpec, Case, str], Executable]


def make_case(algorithm="one_shot", **changes):
    """A case of all_reduce: 8 ranks, bfloat16, accumulator float32, 1 MiB, unless changed."""
    types = {"dtype": "bfloat16", "accumulator": "float32", "reduction": "sum"}
    values = {"op": "all_reduce", "algorithm": algorithm, **types, "size_bytes": 1 << 20, "world_size": 8}
    return Case(**{**values, **changes})


def make_fit_case(spec, **changes):
    """A case that a spec takes, of 3 ranks and 12,000 bytes unless changed. What has to fit does: no accumulator where
    nothing is added, a size that divides by the ranks (rounded down), a barrier's token."""
    op = collective(spec.op)
    dtype = "bfloat16" if "bfloat16" in spec.dtypes else spec.dtypes[0]
    values = {"op": spec.op, "dtype": dtype, "world_size": 3, "size_bytes": 12_000}
    if not op.reduces:
        values |= {"accumulator": NONE, "reduction": NONE}
    if spec.op == "barrier":
        values["size_bytes"] = 4
    case = make_case(spec.algorithm, **{**values, **changes})
    unit = case.itemsize * (case.world_size if op.chunked else 1)
    assert spec.max_size_bytes is None or case.size_bytes <= spec.max_size_bytes
    made = {**values, **changes, "size_bytes": case.size_bytes // unit * unit}
    return make_case(spec.algorithm, **made)


@pytest.fixture(scope="session")
def case_of():
    return make_case


@pytest.fixture(scope="session")
def fit_case():
    return make_fit_case


@pytest.fixture(scope="session")
def opcodes():
    return count_opcodes


@pytest.fixture(scope="session")
def compiled(compile_cache):
    """compiled(spec, case, arch): through one cache for the whole session."""
    return lambda spec, case, arch: executable(spec, case, arch, compile_cache)
