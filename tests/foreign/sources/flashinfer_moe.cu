// FlashInfer's all_to_all for a mixture of experts, which comes from TensorRT-LLM.
#include "flashinfer/comm/trtllm_alltoall.cuh"
