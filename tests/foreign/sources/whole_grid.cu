// CUDA of our own: a barrier of the whole grid, as cooperative groups have it.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void whole_grid(int *out, int *sums, int turns) {
  auto grid = cg::this_grid();
  for (int turn = 0; turn < turns; ++turn) {
    out[grid.thread_rank()] = blockIdx.x * 10 + threadIdx.x + turn;
    grid.sync();
    if (threadIdx.x == 0) {
      int sum = 0;
      for (int at = 0; at < (int)grid.num_threads(); ++at) sum += out[at];
      sums[turn * gridDim.x + blockIdx.x] = sum;
    }
    grid.sync();
  }
}
