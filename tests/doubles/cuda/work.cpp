// What streams do: copies, words, kernels.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

#include "fake_driver.hpp"
#include "looks.hpp"
#include "state.hpp"

namespace fake_cuda {
namespace {

struct Kernel {
  size_t bytes = 0;
  void (*run)(const void*, unsigned, unsigned) = nullptr;
};
std::map<std::string, Kernel> kernels;  // under the state's mutex

constexpr int captures_lists = 13050;

// As calls of functions that do not exist.
void count_copy(CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  const std::lock_guard lock(state().mutex);
  const auto is_gpu = [](CUdeviceptr address) {
    const Region* region = region_at(address);
    return region != nullptr && region->where == Where::device;
  };
  const bool to_gpu = is_gpu(destination), from_gpu = is_gpu(source);
  if (!to_gpu && !from_gpu) return;
  const std::string way = to_gpu && from_gpu ? "inside" : to_gpu ? "from the host" : "to the host";
  ++state().calls["copies " + way];
  state().calls["bytes " + way] += static_cast<long>(bytes);
}

// The driver copies between GPUs that do not reach each other, too, by way of the host; nobody means that.
CUresult copy_now(CUctx_st* context, CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
  if (!is_in_reach(context, destination) || !is_in_reach(context, source)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (const long error = setting("copy_error", 0); error != 0) {
    fake_cuda_set("copy_error", 0);
    return static_cast<CUresult>(error);
  }
  if (const long pause = setting("copy_pause", 0); pause != 0)
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
  std::byte* to = nullptr;
  std::byte* from = nullptr;
  if (const CUresult result = find_bytes(destination, bytes, &to); result != CUDA_SUCCESS) return result;
  if (const CUresult result = find_bytes(source, bytes, &from); result != CUDA_SUCCESS) return result;
  if (bytes > 0) std::memcpy(to, from, bytes);
  count_copy(destination, source, bytes);
  return CUDA_SUCCESS;
}

bool is_known(CUdeviceptr address) {
  const std::lock_guard lock(state().mutex);
  return region_at(address) != nullptr;
}

CUresult copy_list(const CUdeviceptr* destinations, const CUdeviceptr* sources, const size_t* bytes,
                   size_t count, const CUmemcpyAttributes* attributes, const size_t* firsts, size_t kinds,
                   CUctx_st* context, CUstream stream) {
  if (const long error = setting("batch_error", 0); error != 0) return static_cast<CUresult>(error);
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  if (count == 0 || kinds == 0 || kinds > count || firsts[0] != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < kinds; ++i)
    if (attributes[i].srcAccessOrder < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM ||
        attributes[i].srcAccessOrder > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        attributes[i].flags > CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE || firsts[i] >= count ||
        (i > 0 && firsts[i] <= firsts[i - 1]))
      return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(stream) && (driver_version() < captures_lists || setting("captured_lists", 1) == 0))
    return refuse_in_capture(stream);
  struct Copy {
    CUdeviceptr to, from;
    size_t bytes;
  };
  std::vector<Copy> copies;
  for (size_t i = 0, kind = 0; i < count; ++i) {
    if (bytes[i] == 0) return CUDA_ERROR_INVALID_VALUE;
    if (setting("strict_lists", 0) != 0 && !(is_known(destinations[i]) && is_known(sources[i])))
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    copies.push_back({destinations[i], sources[i], bytes[i]});
    if (kind + 1 < kinds && firsts[kind + 1] == i) ++kind;
    if (attributes[kind].flags != CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE) continue;
    fake_cuda_count("copies beside compute", 1);
    fake_cuda_count("bytes beside compute", static_cast<long>(bytes[i]));
  }
  std::shuffle(copies.begin(), copies.end(), std::minstd_rand(static_cast<unsigned>(count)));
  return submit(stream, [context, copies] {
    for (const Copy& copy : copies)
      if (const CUresult result = copy_now(context, copy.to, copy.from, copy.bytes); result != CUDA_SUCCESS)
        return result;
    return CUDA_SUCCESS;
  });
}

CUresult word_at(CUdeviceptr address, std::atomic<uint64_t>*& word) {
  {
    const std::lock_guard lock(state().mutex);
    if (address % sizeof(uint64_t) != 0 || region_at(address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  std::byte* data = nullptr;
  const CUresult result = find_bytes(address, sizeof(uint64_t), &data);
  word = reinterpret_cast<std::atomic<uint64_t>*>(data);
  return result;
}

/// Whether this is the call of its kind that the setting counts down to.
bool is_refused(const char* what) {
  const std::lock_guard lock(state().mutex);
  const auto left = state().settings.find(what);
  return left != state().settings.end() && left->second > 0 && --left->second == 0;
}

}  // namespace

void add_kernel(const char* name, size_t bytes, void (*run)(const void*, unsigned, unsigned)) {
  const std::lock_guard lock(state().mutex);
  kernels[name] = {bytes, run};
}

}  // namespace fake_cuda

using namespace fake_cuda;

struct CUfunc_st {
  std::string name;
  std::atomic<bool> is_loaded{false};
};

// A function is loaded when it is first asked about or launched.
static ContextLock::Kind lock_to_use(CUfunc_st& function) {
  return function.is_loaded.exchange(true) ? ContextLock::Kind::shared : ContextLock::Kind::alone;
}

extern "C" {

CUresult cuMemcpyAsync(CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream stream) {
  FAKE_CONTEXT(context);
  if (is_refused("refused_copy")) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  return submit(stream, [=] { return copy_now(context, destination, source, bytes); });
}

CUresult cuMemcpy2DAsync(const CUDA_MEMCPY2D* work, CUstream stream) {
  FAKE_CONTEXT(context);
  const CUDA_MEMCPY2D copy = *work;
  if (copy.srcMemoryType != CU_MEMORYTYPE_UNIFIED || copy.dstMemoryType != CU_MEMORYTYPE_UNIFIED ||
      copy.WidthInBytes > copy.srcPitch || copy.WidthInBytes > copy.dstPitch)
    return CUDA_ERROR_INVALID_VALUE;
  return submit(stream, [context, copy] {
    for (size_t row = 0; row < copy.Height; ++row)
      if (const CUresult result = copy_now(context, copy.dstDevice + row * copy.dstPitch,
                                           copy.srcDevice + row * copy.srcPitch, copy.WidthInBytes);
          result != CUDA_SUCCESS)
        return result;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemcpyBatchAsync(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* bytes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* firsts, size_t kinds, CUstream stream) {
  FAKE_CONTEXT(context);
  return copy_list(destinations, sources, bytes, count, attributes, firsts, kinds, context, stream);
}

#undef cuMemcpyBatchAsync
CUresult cuMemcpyBatchAsync(CUdeviceptr* destinations, CUdeviceptr* sources, size_t* bytes, size_t count,
                            CUmemcpyAttributes* attributes, size_t* firsts, size_t kinds, size_t* failed,
                            CUstream stream) {
  FAKE_CONTEXT(context);
  *failed = SIZE_MAX;
  return copy_list(destinations, sources, bytes, count, attributes, firsts, kinds, context, stream);
}

CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  FAKE_CONTEXT(context);
  if (flags != CU_STREAM_WRITE_VALUE_DEFAULT) return CUDA_ERROR_INVALID_VALUE;
  std::atomic<uint64_t>* word = nullptr;
  if (const CUresult result = word_at(address, word); result != CUDA_SUCCESS) return result;
  return submit(stream, [word, value] {
    word->store(value);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  FAKE_CONTEXT(context);
  if (flags != CU_STREAM_WAIT_VALUE_GEQ) return CUDA_ERROR_INVALID_VALUE;
  if (is_refused("refused_wait")) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  std::atomic<uint64_t>* word = nullptr;
  if (const CUresult result = word_at(address, word); result != CUDA_SUCCESS) return result;
  return submit(stream, [word, value] {
    look_until([word, value] { return static_cast<int64_t>(word->load() - value) >= 0; });
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamBatchMemOp(CUstream stream, unsigned count, CUstreamBatchMemOpParams* operations,
                            unsigned flags) {
  FAKE_CONTEXT(context);
  constexpr unsigned most = 255;
  if (count == 0 || count > most || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (is_capturing(stream)) return refuse_in_capture(stream);
  struct Operation {
    std::atomic<uint64_t>* word;
    uint64_t value;
    bool waits;
  };
  std::vector<Operation> list;
  for (const CUstreamBatchMemOpParams& each : std::span(operations, count)) {
    const bool waits = each.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
    if (!waits && each.operation != CU_STREAM_MEM_OP_WRITE_VALUE_64) return CUDA_ERROR_INVALID_VALUE;
    const auto& wait = each.waitValue;
    const auto& write = each.writeValue;
    if (waits ? wait.flags != CU_STREAM_WAIT_VALUE_GEQ : write.flags != CU_STREAM_WRITE_VALUE_DEFAULT)
      return CUDA_ERROR_INVALID_VALUE;
    if (waits && is_refused("refused_wait")) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    Operation& operation = list.emplace_back(nullptr, waits ? wait.value64 : write.value64, waits);
    if (const CUresult result = word_at(waits ? wait.address : write.address, operation.word);
        result != CUDA_SUCCESS)
      return result;
  }
  return submit(stream, [list] {
    for (const Operation& each : list) {
      if (!each.waits) each.word->store(each.value);
      if (each.waits)
        look_until([&each] { return static_cast<int64_t>(each.word->load() - each.value) >= 0; });
    }
    return CUDA_SUCCESS;
  });
}

void* fake_cuda_bytes(const void* address, size_t bytes) {
  std::byte* data = nullptr;
  if (find_bytes(reinterpret_cast<uint64_t>(address), bytes, &data) == CUDA_SUCCESS) return data;
  std::fprintf(stderr, "a kernel uses %p, where no memory is\n", address);
  std::abort();
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  FAKE_CONTEXT_ALONE(context);
  if (image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const long refused = setting("image_error", 0); refused != 0) return static_cast<CUresult>(refused);
  *module = reinterpret_cast<CUmodule>(1);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  FAKE_CONTEXT(context);
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  const bool is_loaded = loading != nullptr && std::string(loading) == "EAGER";
  *function = new CUfunc_st{name, {is_loaded}};  // NOLINT: lives as long as the module, for ever
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  called(__func__);
  if (const long refused = setting("function_error", 0); refused != 0) return static_cast<CUresult>(refused);
  const ContextLock context_lock(lock_to_use(*function));
  FAKE_NEED_CONTEXT(context);
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction function) {
  if (const long refused = setting("function_error", 0); refused != 0) return static_cast<CUresult>(refused);
  const ContextLock context_lock(setting("attributes_load", 1) != 0 ? lock_to_use(*function)
                                                                    : ContextLock::Kind::shared);
  *value = 32;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int threads, size_t) {
  constexpr int threads_of_multiprocessor = 1024;
  if (threads <= 0 || threads > threads_of_multiprocessor) return CUDA_ERROR_INVALID_VALUE;
  *blocks = threads_of_multiprocessor / threads;
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                        unsigned threads_y, unsigned threads_z, unsigned, CUstream stream, void** parameters,
                        void** extra) {
  called(__func__);
  called(function->name.c_str());
  if (!function->is_loaded) called("loads by launches");
  const ContextLock context_lock(lock_to_use(*function));
  FAKE_NEED_CONTEXT(context);
  if (x == 0 || y != 1 || z != 1 || threads == 0 || threads > 1024 || threads_y != 1 || threads_z != 1 ||
      extra != nullptr)
    return CUDA_ERROR_INVALID_VALUE;
  Kernel kernel;
  {
    const std::lock_guard lock(state().mutex);
    const auto it = kernels.find(function->name);
    if (it == kernels.end()) return CUDA_ERROR_LAUNCH_FAILED;  // the test brought no code for it
    kernel = it->second;
  }
  const auto* bytes = static_cast<const std::byte*>(parameters[0]);
  launched(function->name, x);
  return submit(stream, [kernel, x, threads, copy = std::vector<std::byte>(bytes, bytes + kernel.bytes)] {
    called("kernels begun");
    kernel.run(copy.data(), x, threads);
    return CUDA_SUCCESS;
  });
}
}
