// SGLang's all-reduce kernels as plain C functions: this file is compiled with the headers of the installed package
// (runner/case/sglang_build.py), once with SYMLAB_PUSH and once without. Grids come from kernels/sglang.py.

#ifdef SYMLAB_PUSH
#include <custom_all_reduce_push.cuh>
#else
#include <custom_all_reduce_pull.cuh>
#endif

#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr bool kDependent = true;

// Queues a kernel so that it may begin before the one before it ends: it waits for that end itself.
int queue(const void* kernel, uint32_t blocks, uint32_t threads, void** arguments, void* stream) {
  if (kernel == nullptr) return cudaErrorInvalidValue;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

template <template <typename, uint32_t> class Kernel, typename Type>
const void* on(uint32_t ranks) {
  switch (ranks) {
    case 2: return Kernel<Type, 2>::get();
    case 4: return Kernel<Type, 4>::get();
    case 6: return Kernel<Type, 6>::get();
    case 8: return Kernel<Type, 8>::get();
    default: return nullptr;
  }
}

// type: 0 float32, 1 float16, 2 bfloat16; nullptr for what there is not.
template <template <typename, uint32_t> class Kernel>
const void* of(uint32_t type, uint32_t ranks) {
  switch (type) {
    case 0: return on<Kernel, fp32_t>(ranks);
    case 1: return on<Kernel, fp16_t>(ranks);
    case 2: return on<Kernel, bf16_t>(ranks);
    default: return nullptr;
  }
}

}  // namespace

#ifdef SYMLAB_PUSH

namespace {
template <typename Type, uint32_t kRanks>
struct Push {
  static const void* get() { return reinterpret_cast<const void*>(all_reduce_one_shot_push_kernel<Type, kRanks, kDependent>); }
};
}  // namespace

// Bytes of a block's epoch, and the number of banks of inboxes.
extern "C" uint32_t symlab_epoch_bytes() { return sizeof(PushController::SignalType); }
extern "C" uint32_t symlab_banks() { return PushController::kNumStages; }

// inboxes: of each rank, the address of its banks; each bank has an inbox of inbox_bytes for every rank.
extern "C" int symlab_push(uint32_t type, uint32_t ranks, uint32_t rank, void* const* inboxes, void* epochs,
                           const void* input, void* output, uint32_t numel, uint32_t inbox_bytes, uint32_t blocks,
                           uint32_t threads, void* stream) {
  if (ranks > device::distributed::kMaxNumGPU) return cudaErrorInvalidValue;
  AllReducePushData data{};
  for (uint32_t one = 0; one < ranks; ++one) data.buffer[one] = inboxes[one];
  data.input = input;
  data.output = output;
  data.rank = rank;
  data.num_items = numel;
  data.buffer_bytes = inbox_bytes;
  data.epoch_bytes = ranks * inbox_bytes;
  PushController controller(epochs);
  void* arguments[] = {&data, &controller};
  return queue(of<Push>(type, ranks), blocks, threads, arguments, stream);
}

#else

namespace {
template <typename Type, uint32_t kRanks>
struct OneShot {
  static const void* get() { return reinterpret_cast<const void*>(all_reduce_one_shot_kernel<Type, kRanks, kDependent>); }
};
template <typename Type, uint32_t kRanks>
struct TwoShot {
  static const void* get() { return reinterpret_cast<const void*>(all_reduce_two_shot_kernel<Type, kRanks, kDependent>); }
};
}  // namespace

// Bytes of a block's flag, and of a table of the ranks' inputs.
extern "C" uint32_t symlab_flag_bytes() { return sizeof(PullController::SignalType); }
extern "C" uint32_t symlab_table_bytes() { return sizeof(AllReduceData); }

// flags: of each rank, the address of its flags, one a block. table: in device memory, the addresses of the inputs.
extern "C" int symlab_pull(uint32_t type, uint32_t ranks, uint32_t rank, uint32_t shots, void* const* flags,
                           const void* table, void* output, uint32_t numel, uint32_t blocks, uint32_t threads,
                           void* stream) {
  if (ranks > device::distributed::kMaxNumGPU) return cudaErrorInvalidValue;
  void* addresses[device::distributed::kMaxNumGPU] = {};
  for (uint32_t one = 0; one < ranks; ++one) addresses[one] = flags[one];
  PullController controller(addresses, ranks);
  AllReduceParams parameters{};
  parameters.output = output;
  parameters.rank = rank;
  parameters.num_items = numel;
  const AllReduceData* inputs = static_cast<const AllReduceData*>(table);
  void* arguments[] = {&inputs, &parameters, &controller};
  const void* kernel = shots == 1 ? of<OneShot>(type, ranks) : of<TwoShot>(type, ranks);
  return queue(kernel, blocks, threads, arguments, stream);
}

#endif
