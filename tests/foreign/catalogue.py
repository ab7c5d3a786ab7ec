"""All kernels of others that the tests run."""

from __future__ import annotations

from tests.foreign import nccl_cases, nvshmem_cases, triton_cases
from tests.foreign.cases import Foreign

KERNELS: tuple[Foreign, ...] = (*triton_cases.KERNELS, *nvshmem_cases.KERNELS, *nccl_cases.KERNELS)
