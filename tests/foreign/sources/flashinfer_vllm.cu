// vLLM's all_reduce as FlashInfer has it: both kernels for one number of GPUs (RANKS) and one type (TYPE).
#include "flashinfer/comm/vllm_custom_all_reduce.cuh"

template __global__ void vllm::cross_device_reduce_1stage<TYPE, RANKS>(vllm::RankData *, vllm::RankSignals,
                                                                       vllm::Signal *, TYPE *, int, int);
template __global__ void vllm::cross_device_reduce_2stage<TYPE, RANKS>(vllm::RankData *, vllm::RankSignals,
                                                                       vllm::Signal *, TYPE *, int, int);
