// FlashInfer's all_to_all for Ulysses parallelism, from sequences to heads, for one number of GPUs (RANKS) and one type.
#include "flashinfer/comm/ulysses_all_to_all.cuh"

template __global__ void flashinfer::comm::ulysses::ulysses_a2a_kernel<TYPE, RANKS, 0>(const TYPE *, vllm::RankData,
                                                                                       vllm::RankSignals,
                                                                                       vllm::Signal *, int, int, int,
                                                                                       int, int);
