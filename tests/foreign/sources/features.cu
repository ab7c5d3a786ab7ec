// CUDA of our own: what nvcc makes of functions, memory, warps, blocks, atomics, numbers and peers' memory.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include <cassert>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cstdio>

namespace cg = cooperative_groups;

// Functions: calls, recursion, pointers to functions, printf, assert, a struct by value

struct Shape {
  char kind;
  short rows;
  int columns;
  double scale;
  float3 offset;
  long long weights[3];
};

__device__ __noinline__ long long weighted(Shape shape, int at) {
  return shape.weights[at % 3] * shape.columns + shape.rows * shape.kind;
}
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
  if (m == 0) return n + 1;
  return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}
__device__ __noinline__ int doubled(int x) { return 2 * x; }
__device__ __noinline__ int squared(int x) { return x * x; }
__device__ __noinline__ int negated(int x) { return -x; }
__device__ __constant__ int (*const table[])(int) = {doubled, squared, negated};
struct Pair {
  int low;
  double high;
};
__device__ __noinline__ Pair split(int x) { return {x & 15, x / 16 + 0.5}; }

extern "C" __global__ void functions(Shape shape, long long *of_struct, unsigned *recursive, int *indirect, double *pairs) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  assert(shape.columns > 0);
  of_struct[at] = weighted(shape, at) + (long long)(shape.scale * shape.offset.y);
  recursive[at] = ackermann(at % 3, at % 4);
  indirect[at] = table[at % 3](at);
  Pair pair = split(at);
  pairs[at] = pair.low * pair.high;
  if (at == 3) printf("thread %d of %s: %.2f and %lld\n", at, "functions", shape.scale, shape.weights[1]);
}

extern "C" __global__ void asserts(int limit) { assert((int)threadIdx.x < limit); }

// Memory: every window, by its own instructions and through generic addresses

__constant__ float coefficients[4] = {0.5f, -1.25f, 3.0f, 8.0f};
__device__ int counter = 40;
__device__ short primes[] = {2, 3, 5, 7, 11, 13, 17, 19};

__device__ __noinline__ int through(const int *any, int at) { return any[at]; }

extern "C" __global__ void memory(const float4 *__restrict__ in, float4 *out, int *sums, int *where) {
  extern __shared__ char dynamic[];
  __shared__ int fixed[64];
  int thread = threadIdx.x, at = blockIdx.x * blockDim.x + thread;
  int own[8];
  for (int i = 0; i < 8; ++i) own[i] = primes[i] * (thread + i);
  fixed[thread] = thread * 3;
  int *second = (int *)dynamic + 16;
  second[thread] = thread * thread;
  __syncthreads();
  const int *any = thread % 3 == 0 ? fixed : thread % 3 == 1 ? second : own;
  sums[at] = through(any, thread % 3 == 2 ? thread % 8 : 63 - thread) + counter;
  where[at] = __isShared(any) + 2 * __isLocal(any) + 4 * __isGlobal(&counter) + 8 * __isGlobal(any);
  float4 loaded = __ldg(in + at);
  loaded.x *= coefficients[thread % 4];
  loaded.y += __ldcs(&in[at].z);
  __stcs(&out[at], loaded);
}

// Warps: shuffles, votes, matches, reductions, groups of cooperative_groups

extern "C" __global__ void warps(const int *in, int *out) {
  int thread = threadIdx.x, lane = thread % 32, value = in[thread];
  int *row = out + thread * 24;
  *row++ = __shfl_sync(~0u, value, (lane * 7) % 32);
  *row++ = __shfl_up_sync(~0u, value, 3);
  *row++ = __shfl_down_sync(~0u, value, 5, 16);
  *row++ = __shfl_xor_sync(~0u, value, 9);
  *row++ = (int)__ballot_sync(~0u, value & 1);
  *row++ = __any_sync(~0u, value == 5);
  *row++ = __all_sync(~0u, value > -100);
  *row++ = (int)__match_any_sync(~0u, value);
  int same;
  *row++ = (int)__match_all_sync(~0u, lane == 40, &same);
  *row++ = same;
  *row++ = __reduce_add_sync(~0u, value);
  *row++ = __reduce_min_sync(~0u, value);
  *row++ = __reduce_max_sync(~0u, value);
  *row++ = (int)__reduce_and_sync(~0u, (unsigned)value);
  *row++ = (int)__reduce_or_sync(~0u, (unsigned)value);
  *row++ = (int)__reduce_xor_sync(~0u, (unsigned)value);
  auto alike = cg::labeled_partition(cg::tiled_partition<32>(cg::this_thread_block()), value & 1);
  *row++ = value & 1 ? (int)(alike.thread_rank() * 100 + alike.size()) : 0;
  auto tile = cg::tiled_partition<8>(cg::this_thread_block());
  *row++ = cg::reduce(tile, value, cg::plus<int>());
  *row++ = cg::exclusive_scan(tile, value, cg::plus<int>());
  *row++ = tile.shfl(value, 2) + tile.meta_group_rank() * 1000;
  *row++ = (int)(__activemask() >> lane & 1);  // of the other lanes CUDA promises nothing
  unsigned below;
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  *row++ = (int)below;
  *row++ = cg::this_thread_block().thread_rank();
  int chosen = 0;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.s32 %0, 1, 0, p; }" : "=r"(chosen));
  *row++ = __reduce_add_sync(~0u, chosen);
}

// Blocks and grids: named barriers, barriers that reduce, three dimensions, a barrier of the whole grid

extern "C" __global__ void barriers(int *votes, int *handed, int *coordinates, unsigned *arrived, int *rounds) {
  __shared__ int box[32];
  int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  int threads = blockDim.x * blockDim.y * blockDim.z, blocks = gridDim.x * gridDim.y * gridDim.z;
  int at = block * threads + thread;
  coordinates[at] = threadIdx.x + 10 * threadIdx.y + 100 * threadIdx.z + 1000 * blockIdx.x + 10000 * blockIdx.y +
                    100000 * blockIdx.z;
  votes[at] = __syncthreads_count(thread % 3 == 0) + 1000 * __syncthreads_and(thread >= 0) +
              2000 * __syncthreads_or(thread == 70);
  // The second warp waits for what the first hands over; the others pass by.
  if (thread < 32) {
    box[thread] = 7 * thread + block;
    __threadfence_block();
    asm volatile("bar.arrive 3, 64;" ::: "memory");
  } else if (thread < 64) {
    asm volatile("bar.sync 3, 64;" ::: "memory");
    handed[block * 32 + thread - 32] = box[63 - thread];
  }
  for (unsigned round = 0; round < 3; ++round) {
    if (thread == 0) {
      rounds[round * blocks + block] = block + round;
      __threadfence();
      atomicAdd(arrived, 1);
      while (*(volatile unsigned *)arrived < (round + 1) * blocks) __nanosleep(20);
      __threadfence();
      int sum = 0;
      for (int i = 0; i < blocks; ++i) sum += ((volatile int *)rounds)[round * blocks + i];
      rounds[(3 + round) * blocks + block] = sum;
    }
    __syncthreads();
  }
}

// Atomics, on shared and on global memory

struct Counts {
  int added, least, most, swapped, cut, mixed, turned;
  unsigned wrapped, fell, all, any;
  float real;
  double wide;
  unsigned long long large;
  half2 halves;
  nv_bfloat162 brains;
  unsigned short narrow;
};

__device__ void count(Counts *to, int value) {
  atomicAdd(&to->added, value);
  atomicMin(&to->least, value);
  atomicMax(&to->most, value);
  if (value == 77) atomicExch(&to->swapped, value);
  atomicSub(&to->cut, value);
  atomicXor(&to->mixed, value);
  for (int old = *(volatile int *)&to->turned, seen;; old = seen) {
    seen = atomicCAS(&to->turned, old, old + value % 5);
    if (seen == old) break;
  }
  atomicInc(&to->wrapped, 9);
  atomicDec(&to->fell, 6);
  atomicAnd(&to->all, (unsigned)value | 3);
  atomicOr(&to->any, (unsigned)value);
  atomicAdd(&to->real, (float)value);
  atomicAdd(&to->wide, (double)value);
  atomicAdd(&to->large, (unsigned long long)value << 33);
  atomicAdd(&to->halves, __floats2half2_rn(1.f, value % 3));
  atomicAdd(&to->brains, __floats2bfloat162_rn(1.f, value % 2));
  for (unsigned short old = *(volatile unsigned short *)&to->narrow, seen;; old = seen) {
    seen = atomicCAS(&to->narrow, old, (unsigned short)(old + 1));
    if (seen == old) break;
  }
}

extern "C" __global__ void atomics(const int *in, Counts *blocks, Counts *grid, const Counts *start) {
  __shared__ Counts shared;
  if (threadIdx.x == 0) shared = *start;
  __syncthreads();
  int value = in[blockIdx.x * blockDim.x + threadIdx.x];
  count(&shared, value);
  count(grid, value);
  __syncthreads();
  if (threadIdx.x == 0) blocks[blockIdx.x] = shared;
}

// Numbers: functions of the math library

extern "C" __global__ void libm(const double *in, double *wide, float *narrow) {
  int at = threadIdx.x;
  double x = in[at];
  double *row = wide + at * 6;
  *row++ = exp(x);
  *row++ = log(fabs(x) + 0.5);
  *row++ = sin(x * 50);
  *row++ = cbrt(x);
  *row++ = pow(fabs(x) + 1, x);
  *row++ = sqrt(fabs(x));
  float y = (float)x, *other = narrow + at * 4;
  *other++ = expf(y);
  *other++ = logf(fabsf(y) + 0.5f);
  *other++ = sinf(y);
  *other++ = tanhf(y);
}

// Several GPUs: peers' memory by a struct of pointers, and the switch by inline PTX

struct Peers {
  float *data[8];
  unsigned *flags[8];
};

__device__ void meet(const Peers &peers, int rank, int ranks, unsigned round) {
  __syncthreads();
  if ((int)threadIdx.x < ranks) {
    asm volatile("red.release.sys.global.add.u32 [%0], 1;" ::"l"(peers.flags[threadIdx.x]) : "memory");
  }
  if (threadIdx.x == 0) {
    unsigned seen;
    do {
      asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(peers.flags[rank]) : "memory");
    } while (seen < round * ranks);
  }
  __syncthreads();
}

extern "C" __global__ void rotate(Peers peers, float *out, int rank, int ranks, int count) {
  for (int at = threadIdx.x; at < count; at += blockDim.x) {
    peers.data[(rank + 1) % ranks][at] = rank * 1000 + at;
  }
  meet(peers, rank, ranks, 1);
  for (int at = threadIdx.x; at < count; at += blockDim.x) out[at] = peers.data[rank][at];
}

extern "C" __global__ void through_switch(Peers peers, float *data, float *sums, int rank, int ranks, int count) {
  // data and sums are multicast addresses: each rank reduces a share, and sends it to all.
  int share = count / ranks;
  meet(peers, rank, ranks, 1);
  for (int at = rank * share + 4 * threadIdx.x; at < (rank + 1) * share; at += 4 * blockDim.x) {
    float4 sum;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(sum.x), "=f"(sum.y), "=f"(sum.z), "=f"(sum.w)
                 : "l"(data + at)
                 : "memory");
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(sums + at), "f"(sum.x), "f"(sum.y),
                 "f"(sum.z), "f"(sum.w)
                 : "memory");
  }
  meet(peers, rank, ranks, 2);
}

// Clusters: shared memory of other blocks, and a barrier of the cluster

extern "C" __global__ void __cluster_dims__(4, 1, 1) clusters(const int *in, int *histogram, int *places, int count) {
  __shared__ int bins[16];
  auto cluster = cg::this_cluster();
  int thread = threadIdx.x;
  if (thread < 16) bins[thread] = 0;
  cluster.sync();
  int threads = cluster.num_blocks() * blockDim.x, first = (blockIdx.x / cluster.num_blocks()) * count;
  for (int at = cluster.thread_rank(); at < count; at += threads) {
    int bin = in[first + at] & 63;
    atomicAdd(cluster.map_shared_rank(bins, bin / 16) + bin % 16, 1);
  }
  cluster.sync();
  if (thread < 16) histogram[blockIdx.x * 16 + thread] = bins[thread];
  if (thread == 0) places[blockIdx.x] = cluster.block_rank() * 100 + cluster.num_blocks() * 10 + cluster.query_shared_rank(bins);
}

// Copies that run beside the threads: cp.async through pipelines, and a barrier in shared memory

extern "C" __global__ void copies(const float4 *in, float4 *out, int tiles) {
  __shared__ float4 stages[2][64];
  int thread = threadIdx.x;
  const float4 *mine = in + blockIdx.x * tiles * 64;
  __pipeline_memcpy_async(&stages[0][thread], mine + thread, 16);
  __pipeline_commit();
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) __pipeline_memcpy_async(&stages[(tile + 1) % 2][thread], mine + (tile + 1) * 64 + thread, 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    float4 other = stages[tile % 2][63 - thread];
    other.w += tile;
    out[(blockIdx.x * tiles + tile) * 64 + thread] = other;
    __syncthreads();
  }
}

extern "C" __global__ void phases(int *out, int turns) {
  __shared__ cuda::barrier<cuda::thread_scope_block> ready;
  __shared__ int box[64];
  int thread = threadIdx.x;
  if (thread == 0) init(&ready, 64);
  __syncthreads();
  int sum = 0;
  for (int turn = 0; turn < turns; ++turn) {
    box[thread] = turn * 100 + thread;
    ready.arrive_and_wait();
    sum += box[(thread + turn + 1) % 64];
    auto token = ready.arrive();
    ready.wait(cuda::std::move(token));
  }
  cuda::atomic_ref<int, cuda::thread_scope_device> total(out[64]);
  total.fetch_add(sum, cuda::memory_order_relaxed);
  out[thread] = sum;
}
