#include "probe_lab.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <stdexcept>

#include "device/cuda/priorities.hpp"

namespace epccl::device::probe {
namespace {

constexpr size_t page = 4096, second_word = 64;

void* shared_page() {
  void* memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for a word");
  return memory;
}

template <class Parameters>
void start(CUfunction kernel, const kernels::Launch<Parameters>& launch, CUstream stream) {
  Parameters parameters = launch.parameters;
  void* arguments[] = {&parameters};
  EPCCL_PROBE(
      cuLaunchKernel(kernel, launch.blocks, 1, 1, launch.threads, 1, 1, 0, stream, arguments, nullptr));
}

}  // namespace

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  throw std::runtime_error(
      fmt::format("{}: {} ({})", call, name == nullptr ? "?" : name, static_cast<int>(result)));
}

Lab::Lab() {
  EPCCL_PROBE(cuInit(0));
  CUdevice gpu = 0;
  EPCCL_PROBE(cuDeviceGet(&gpu, 0));
  EPCCL_PROBE(cuDevicePrimaryCtxRetain(&context_, gpu));
  enter();
  EPCCL_PROBE(cuCtxGetStreamPriorityRange(&lowest_priority, &highest_priority));
  own_priority = cuda::own_priority(lowest_priority, highest_priority);
  held = make_stream(lowest_priority);
  other = make_stream(lowest_priority);
  own = make_stream(own_priority);
  make_memory();
  make_word();
  load_kernels();
  use_all();
}

void Lab::enter() const {
  EPCCL_PROBE(cuCtxPushCurrent(context_));
}

CUstream Lab::make_stream(int priority) const {
  CUstream made = nullptr;
  EPCCL_PROBE(cuStreamCreateWithPriority(&made, CU_STREAM_NON_BLOCKING, priority));
  return made;
}

void Lab::make_memory() {
  EPCCL_PROBE(cuMemAlloc(&from, large));
  EPCCL_PROBE(cuMemAlloc(&to, large));
  for (CUdeviceptr* address : {&pinned, &also_pinned}) {
    void* memory = nullptr;
    EPCCL_PROBE(
        cuMemHostAlloc(&memory, pageable_bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
    *address = reinterpret_cast<CUdeviceptr>(memory);
  }
  static std::byte bytes[pageable_bytes];
  pageable = bytes;
}

void Lab::make_word() {
  void* memory = shared_page();
  EPCCL_PROBE(cuMemHostRegister(memory, page, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
  EPCCL_PROBE(cuMemHostGetDevicePointer(&device_word_, memory, 0));
  word_ = new (memory) std::atomic<uint64_t>{0};
}

void Lab::load_kernels() {
  const auto image = kernels::bytes_of(kernels::Image::rows);
  if (image.empty()) return;
  EPCCL_PROBE(cuModuleLoadData(&rows_, image.data()));
  EPCCL_PROBE(cuModuleGetFunction(&move_, rows_, "epccl_move"));
}

void Lab::use_all() const {
  for (CUstream stream : {held, other, own}) {
    EPCCL_PROBE(cuMemcpyAsync(to, from, large, stream));
    EPCCL_PROBE(cuMemcpyAsync(pinned, from, small, stream));
    EPCCL_PROBE(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(pageable), from, small, stream));
    EPCCL_PROBE(cuMemcpyAsync(to, reinterpret_cast<CUdeviceptr>(pageable), pageable_bytes, stream));
    if (has_kernels()) launch(stream);
    post(stream);
    EPCCL_PROBE(cuStreamSynchronize(stream));
  }
}

void Lab::hold(CUstream stream) const {
  EPCCL_PROBE(cuStreamWaitValue64(stream, device_word_, 1, CU_STREAM_WAIT_VALUE_GEQ));
}

void Lab::post(CUstream stream) const {
  EPCCL_PROBE(cuStreamWriteValue64(stream, device_word_ + second_word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
}

void Lab::launch(CUstream stream) const {
  kernels::MoveParameters row;
  row.parts[0] = {
      {reinterpret_cast<std::byte*>(from), small}, {reinterpret_cast<std::byte*>(to), small}, small};
  row.part_count = 1;
  row.rows.most = 1;
  start(move_, kernels::move_launch(row, {}), stream);
}

CUfunction Lab::find_unused() const {
  CUfunction found = nullptr;
  EPCCL_PROBE(cuModuleGetFunction(&found, rows_, "epccl_dequantise_bfloat16"));
  return found;
}

void Lab::launch_unused(CUfunction kernel, CUstream stream) const {
  constexpr uint32_t elements = 128;
  kernels::MoveParameters row;
  row.parts[0] = {{reinterpret_cast<std::byte*>(from), elements},
                  {reinterpret_cast<std::byte*>(to), 2 * elements},
                  elements};
  row.parts[1] = {{reinterpret_cast<std::byte*>(from + small), sizeof(float)}, {}, sizeof(float)};
  row.part_count = 2;
  row.elements = elements;
  row.rows.most = 1;
  start(kernel, kernels::dequantise_launch(RowType::bfloat16, row, {}), stream);
}

}  // namespace epccl::device::probe
