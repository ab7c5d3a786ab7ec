// An all_reduce by NCCL's LL packets (nccl_device/ll_a2a.h): each thread sends its elements to all ranks, and adds theirs.
#include <cuda_runtime.h>

#include <nccl_device.h>

extern "C" __global__ void all_reduce_ll(const __grid_constant__ ncclDevComm comm,
                                         const __grid_constant__ ncclLLA2AHandle handle, const float *input,
                                         float *output, int numel) {
  ncclCoopCta coop;
  ncclTeam team = ncclTeamLsa(comm);
  const int threads = blockDim.x, thread = threadIdx.x;
  ncclLLA2ASession<ncclCoopCta> session(coop, comm, team, handle, blockIdx.x, team.nRanks * threads);
  for (int at = blockIdx.x * threads; at < numel; at += gridDim.x * threads) {
    session.bcast(team.rank * threads + thread, input[at + thread]);
    output[at + thread] = session.template recvReduce<4, float>(
        thread, team.nRanks, threads, [](float one) { return one; }, [](float one, float other) { return one + other; });
    session.endEpoch(coop);
  }
}
