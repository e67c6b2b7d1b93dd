// A GPU for PyTorch on a machine without one: PyTorch's CUDA device, its streams, events and memory, on the double of the driver
// (tests/doubles/cuda). What the backend asks of a GPU it asks through c10's interface, which is answered here.
//
// Operations that the backend and its tests use run on the host, in the order of their stream, as kernels would. The allocator does
// what PyTorch's does: memory of a tensor that is gone is used again by the same stream at once, whatever other streams do with it,
// unless these were recorded. Here it is poisoned first, so that who has it still sees that.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/native/Resize.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <cuda.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "fake_driver.hpp"

namespace {

constexpr c10::DeviceType gpu = c10::DeviceType::CUDA;

void must(CUresult result, const char* what) {
  TORCH_CHECK(result == CUDA_SUCCESS, "double of a GPU: ", what, ": error ", static_cast<int>(result));
}
#define MUST(call) must(call, #call)

CUcontext context() {
  static const CUcontext made = [] {
    CUcontext primary = nullptr;
    MUST(cuInit(0));
    MUST(cuDevicePrimaryCtxRetain(&primary, 0));
    return primary;
  }();
  return made;
}

// ---- streams: 0 is the NULL stream; further ones are PyTorch's pool, then its pool of high priority

constexpr int pool_size = 32;
constexpr int high_priority = -3;  // PyTorch has four priorities, a GPU more
thread_local c10::StreamId current = 0;

CUstream stream_of(c10::StreamId id) {
  static const std::vector<CUstream> pool = [] {
    std::vector<CUstream> made(2 * pool_size + 1, nullptr);
    for (int i = 1; i <= 2 * pool_size; ++i)
      MUST(cuStreamCreateWithPriority(&made[static_cast<size_t>(i)], CU_STREAM_NON_BLOCKING,
                                      i > pool_size ? high_priority : 0));
    return made;
  }();
  return pool.at(static_cast<size_t>(id));
}

struct Job {
  std::function<void()>* run;
};

/// Runs in the stream's thread, in its order.
void enqueue(c10::StreamId stream, std::function<void()> work) {
  static const CUfunction function = [] {
    fake_cuda_kernel("epccl_test_job", sizeof(Job), [](const void* parameter, unsigned, unsigned) {
      Job job{};
      std::memcpy(&job, parameter, sizeof job);
      const std::unique_ptr<std::function<void()>> owned(job.run);
      (*owned)();
    });
    static const char image[64] = "epccl_test";
    CUmodule module = nullptr;
    CUfunction found = nullptr;
    MUST(cuModuleLoadData(&module, image));
    MUST(cuModuleGetFunction(&found, module, "epccl_test_job"));
    return found;
  }();
  Job job{new std::function<void()>(std::move(work))};
  void* parameters[] = {&job};
  MUST(cuCtxSetCurrent(context()));
  MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream_of(stream), parameters, nullptr));
}

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return gpu; }
  c10::Device exchangeDevice(c10::Device) const override { return use(); }
  c10::Device getDevice() const override { return {gpu, 0}; }
  void setDevice(c10::Device) const override { (void)use(); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device) const override { return named(current); }
  c10::Stream getDefaultStream(c10::Device) const override { return named(0); }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool is_high_priority) const override {
    static std::array<std::atomic<int>, 2> next{};
    return named(1 + next[is_high_priority]++ % pool_size + (is_high_priority ? pool_size : 0));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return named(std::exchange(current, stream.id()));
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return stream_of(stream.id()); }
  bool queryStream(const c10::Stream& stream) const override {
    return cuStreamQuery(stream_of(stream.id())) == CUDA_SUCCESS;
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    (void)use();
    MUST(cuStreamSynchronize(stream_of(stream.id())));
  }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    (void)use();
    if (*event == nullptr) {
      CUevent made = nullptr;
      MUST(cuEventCreate(&made, CU_EVENT_DISABLE_TIMING));
      *event = made;
    }
    MUST(cuEventRecord(static_cast<CUevent>(*event), stream_of(stream.id())));
  }
  void block(void* event, const c10::Stream& stream) const override {
    (void)use();
    if (event != nullptr) MUST(cuStreamWaitEvent(stream_of(stream.id()), static_cast<CUevent>(event), 0));
  }
  bool queryEvent(void* event) const override {
    (void)use();
    return event == nullptr || cuEventQuery(static_cast<CUevent>(event)) == CUDA_SUCCESS;
  }
  void synchronizeEvent(void* event) const override {
    while (!queryEvent(event)) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event != nullptr) (void)cuEventDestroy(static_cast<CUevent>(event));
  }
  void recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const override;

 private:
  static c10::Device use() {
    MUST(cuCtxSetCurrent(context()));
    return {gpu, 0};
  }
  static c10::Stream named(c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(gpu, 0), id);
  }
};

// ---- memory

struct Block {
  void* address;
  size_t bytes;
  c10::StreamId stream;              // that it was allocated for
  std::set<c10::StreamId> recorded;  // others that use it
};

std::mutex free_mutex;
std::map<std::pair<c10::StreamId, size_t>, std::vector<void*>> free_blocks;

void give_back(void* pointer) {
  const std::unique_ptr<Block> block(static_cast<Block*>(pointer));
  if (!block->recorded.empty()) return;  // not before those streams are through: here, never
  enqueue(block->stream,
          [address = block->address, bytes = block->bytes] { std::memset(address, 0xee, bytes); });
  const std::lock_guard lock(free_mutex);
  free_blocks[{block->stream, block->bytes}].push_back(block->address);
}

c10::DataPtr allocate(size_t bytes) {
  const c10::Device device(gpu, 0);
  if (bytes == 0) return {nullptr, device};
  auto block = std::make_unique<Block>(Block{nullptr, (bytes + 255) / 256 * 256, current, {}});
  {
    const std::lock_guard lock(free_mutex);
    auto& waiting = free_blocks[{current, block->bytes}];
    if (!waiting.empty()) {
      block->address = waiting.back();
      waiting.pop_back();
    }
  }
  if (block->address == nullptr) {
    CUdeviceptr made = 0;
    MUST(cuCtxSetCurrent(context()));
    MUST(cuMemAlloc(&made, block->bytes));
    block->address = reinterpret_cast<void*>(made);
  }
  void* const address = block->address;
  return {address, block.release(), &give_back, device};
}

void Guard::recordDataPtrOnStream(const c10::DataPtr& memory, const c10::Stream& stream) const {
  if (memory.get_deleter() != &give_back) return;
  auto* const block = static_cast<Block*>(memory.get_context());
  if (stream.id() != block->stream) block->recorded.insert(stream.id());
}

struct PinnedBlock {
  void* address;
  size_t bytes;
};
struct PinnedBlocks {
  std::mutex mutex;
  std::multimap<size_t, PinnedBlock*> idle;
};
PinnedBlocks& pinned_blocks() {
  static auto* const instance = new PinnedBlocks;
  return *instance;
}

void unpin(void* block) {
  auto* const given_back = static_cast<PinnedBlock*>(block);
  const std::lock_guard lock(pinned_blocks().mutex);
  pinned_blocks().idle.emplace(given_back->bytes, given_back);
}

PinnedBlock* pin(size_t bytes) {
  const std::lock_guard lock(pinned_blocks().mutex);
  if (auto idle = pinned_blocks().idle.extract(bytes)) return idle.mapped();
  void* made = nullptr;
  MUST(cuCtxSetCurrent(context()));
  MUST(cuMemHostAlloc(&made, bytes, 0));
  return new PinnedBlock{made, bytes};
}

/// Pinned memory, never freed, as PyTorch's is not: a stream's thread may be the last to use it. Copies keep what they use, so nothing
/// has to be recorded.
class Pinned final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, c10::kCPU};
    PinnedBlock* const block = pin(bytes);
    return {block->address, block, &unpin, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

// ---- operations

at::Tensor empty(c10::SymIntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat>) {
  const auto shape = C10_AS_INTARRAYREF_SLOW(sizes);
  const auto type = c10::scalarTypeToTypeMeta(dtype.value_or(at::kFloat));
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(shape)) * type.itemsize();
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                       allocate(bytes), nullptr, false);
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                         c10::DispatchKeySet(c10::DispatchKey::CUDA), type);
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(shape);
  return tensor;
}

at::Tensor empty_strided(c10::SymIntArrayRef sizes, c10::SymIntArrayRef strides,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout> layout,
                         std::optional<at::Device> device, std::optional<bool> pin) {
  const auto shape = C10_AS_INTARRAYREF_SLOW(sizes);
  const auto steps = C10_AS_INTARRAYREF_SLOW(strides);
  int64_t extent = c10::multiply_integers(shape) == 0 ? 0 : 1;
  for (size_t i = 0; extent > 0 && i < shape.size(); ++i) extent += (shape[i] - 1) * steps[i];
  const std::vector<c10::SymInt> flat{extent};
  return empty(flat, dtype, layout, device, pin, std::nullopt).as_strided(shape, steps);
}

/// The same memory, for code of the host.
at::Tensor on_host(const at::Tensor& tensor) {
  if (tensor.is_cpu()) return tensor;
  return at::from_blob(const_cast<void*>(tensor.const_data_ptr()), tensor.sizes(), tensor.strides(),
                       at::dtype(tensor.scalar_type()));
}

/// A driver may do so for memory that is not pinned: with FAKE_CUDA_CONTEXT_LOCK nobody else gets in until all streams are through.
void wait_in_the_driver() {
  CUdeviceptr some = 0;
  MUST(cuCtxSetCurrent(context()));
  MUST(cuMemAlloc(&some, 1));
  MUST(cuMemFree(some));
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return to;
  const bool both = to.is_cuda() && from.is_cuda();
  const at::Tensor& other = to.is_cuda() ? from : to;
  if (!both && other.storage().data_ptr().get_deleter() != &unpin) wait_in_the_driver();
  // As with CUDA, the memory is not kept: only its address.
  const at::Tensor target = on_host(to), source = on_host(from.expand_as(to));
  enqueue(current, [target, source]() mutable {
    const at::NoGradGuard no_grad;
    target.copy_(source);
  });
  if (!both && !non_blocking) MUST(cuStreamSynchronize(stream_of(current)));
  return to;
}

/// Operations that write their first argument.
void in_place(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t count = op.schema().arguments().size();
  const at::Tensor result = torch::jit::peek(*stack, 0, count).toTensor();
  std::vector<c10::IValue> arguments = torch::jit::pop(*stack, count);
  for (c10::IValue& argument : arguments)
    if (argument.isTensor()) argument = on_host(argument.toTensor());
  enqueue(current, [op, arguments] {
    const at::NoGradGuard no_grad;
    torch::jit::Stack own = arguments;
    op.callBoxed(&own);
  });
  torch::jit::push(*stack, result);
}

// ---- for the tests

/// Holds a stream until it is opened.
class Gate {
 public:
  Gate() {
    enqueue(current, [state = state_] {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->open; });
    });
  }
  void open() {
    {
      const std::lock_guard lock(state_->mutex);
      state_->open = true;
    }
    state_->changed.notify_all();
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool open = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

at::Tensor to_gpu(const at::Tensor& tensor) {
  at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(),
                                      at::dtype(tensor.scalar_type()).device(c10::Device(gpu, 0)));
  made.copy_(tensor);
  return made;
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("copy_", &copy);
  for (const char* name : {"bitwise_and_.Tensor", "bitwise_or_.Tensor", "bitwise_xor_.Tensor", "add_.Tensor",
                           "zero_", "fill_.Scalar"})
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&in_place>());
}

PYBIND11_MODULE(gpu_double, module) {
  static const Guard guard;
  static const c10::impl::DeviceGuardImplRegistrar registered(gpu, &guard);
  static Pinned pinned;
  at::setHostAllocator(gpu, &pinned, 1);
  (void)cuCtxSetCurrent(context());
  module.def("to_gpu", &to_gpu, "A tensor in the GPU's memory.");
  module.def("new_stream", [] { return guard.getStreamFromGlobalPool({gpu, 0}, false).id(); });
  module.def("current_stream", [] { return current; });
  module.def(
      "use_stream", [](c10::StreamId id) { return std::exchange(current, id); },
      "Returns which was the current one.");
  module.def("idle", [](c10::StreamId id) { return cuStreamQuery(stream_of(id)) == CUDA_SUCCESS; });
  module.def(
      "synchronize", [] { MUST(cuStreamSynchronize(stream_of(current))); },
      pybind11::call_guard<pybind11::gil_scoped_release>());
  pybind11::class_<Gate>(module, "Gate").def(pybind11::init<>()).def("open", &Gate::open);
  module.def(
      "lists_of_copies", [] { return fake_cuda_calls("cuMemcpyBatchAsync_v2"); },
      "How many the driver was given.");
  module.def("live", &fake_cuda_live, "Of the process, in the driver: \"streams\", \"pinned\" (bytes).");
}
