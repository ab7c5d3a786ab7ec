// TensorRT-LLM's all_reduce as FlashInfer has it, for one number of GPUs (RANKS) and one type (TYPE): one-shot and
// two-shot, each by copying to the own buffer and by pushing to the others', and Lamport's with its RMS norm,
// a token by one block and by a cluster of two.
#include <stdexcept>

#include "flashinfer/comm/trtllm_allreduce.cuh"

using namespace flashinfer::trtllm_allreduce;

// A reference from the host instantiates a kernel.
void *kernels[] = {
    (void *)oneShotAllReduceKernel<TYPE, RANKS, true, false>,
    (void *)oneShotAllReduceKernel<TYPE, RANKS, true, true>,
    (void *)twoShotAllReduceKernel<TYPE, RANKS, true, false, false, true>,
    (void *)twoShotAllReduceKernel<TYPE, RANKS, true, true, true, true>,
    (void *)reduce_fusion::lamport_style_one_shot_all_reduce_norm_kernel<1, TYPE, RANKS, false, true, true>,
    (void *)reduce_fusion::lamport_style_one_shot_all_reduce_norm_kernel<2, TYPE, RANKS, false, true, true>,
};
static_assert(sizeof(AllReduceParams<TYPE>) == 896, "flashinfer_cases.py lays the struct out");
