"""All kernels of others that the tests run."""

from tests.foreign import (
    feature_cases,
    flashinfer_cases,
    nccl_cases,
    numba_cases,
    nvshmem_cases,
    sglang_cases,
    triton_cases,
)

KERNELS = (
    *triton_cases.KERNELS,
    *numba_cases.KERNELS,
    *feature_cases.KERNELS,
    *flashinfer_cases.KERNELS,
    *sglang_cases.KERNELS,
    *nvshmem_cases.KERNELS,
    *nccl_cases.KERNELS,
)
