"""All kernels of others that the tests run."""

from __future__ import annotations

from tests.foreign import triton_cases
from tests.foreign.cases import Foreign

KERNELS: tuple[Foreign, ...] = (*triton_cases.KERNELS,)
