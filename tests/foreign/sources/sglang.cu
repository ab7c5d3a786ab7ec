// SGLang's all_reduce kernels of one type (TYPE) for one number of GPUs (RANKS), which wait for the launch before them.
#ifdef PUSH
#include "custom_all_reduce_push.cuh"
#else
#include "custom_all_reduce_pull.cuh"
#endif

namespace {
#ifdef PUSH
template __global__ void all_reduce_one_shot_push_kernel<TYPE, RANKS, true>(const AllReducePushData __grid_constant__,
                                                                            const PushController __grid_constant__);
#else
template __global__ void all_reduce_one_shot_kernel<TYPE, RANKS, true>(const AllReduceData *,
                                                                       const AllReduceParams __grid_constant__,
                                                                       const PullController __grid_constant__);
template __global__ void all_reduce_two_shot_kernel<TYPE, RANKS, true>(const AllReduceData *,
                                                                       const AllReduceParams __grid_constant__,
                                                                       const PullController __grid_constant__);
#endif
}  // namespace
