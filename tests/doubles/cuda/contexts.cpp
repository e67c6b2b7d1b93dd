// Devices, contexts, names of errors.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "fake_driver.hpp"
#include "state.hpp"

namespace fake_cuda {
namespace {

thread_local std::vector<CUctx_st*> stack;
thread_local CUstreamCaptureMode capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

std::optional<long> from_environment(std::string_view name) {
  std::string variable = "FAKE_CUDA_";
  for (const char letter : name) variable += static_cast<char>(std::toupper(letter));
  const char* value = std::getenv(variable.c_str());
  return value == nullptr ? std::nullopt : std::optional(std::atol(value));
}

CUresult need_driver() {
  return state().is_initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

}  // namespace

State& state() {
  static auto* instance = new State;  // NOLINT: streams' threads outlive static objects
  return *instance;
}

long setting(std::string_view name, long otherwise) {
  const std::lock_guard lock(state().mutex);
  if (const auto it = state().settings.find(name); it != state().settings.end()) return it->second;
  auto& environment = state().environment;
  auto known = environment.find(name);
  if (known == environment.end()) known = environment.emplace(name, from_environment(name)).first;
  return known->second.value_or(otherwise);
}

ContextLock::Kind lock_to_allocate() {
  return setting("alone_allocations", 0) != 0 ? ContextLock::Kind::alone : ContextLock::Kind::shared;
}

int environment(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::atoi(value);
}

int device_count() {
  return environment("FAKE_CUDA_DEVICES", 1);
}
int driver_version() {
  return environment("FAKE_CUDA_VERSION", 13000);
}
bool memory_is_open() {
  static const bool is_open = environment("FAKE_CUDA_OPEN", 0) != 0;
  return is_open;
}

void wait_to_export() {
  while (setting("export_waits", 0) != 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void called(const char* function) {
  const std::lock_guard lock(state().mutex);
  ++state().calls[function];
}

void launched(const std::string& kernel, unsigned blocks) {
  const std::lock_guard lock(state().mutex);
  long& most = state().calls["most blocks of " + kernel];
  most = std::max(most, static_cast<long>(blocks));
}

CUresult need_context(CUctx_st** context) {
  if (const CUresult result = need_driver(); result != CUDA_SUCCESS) return result;
  if (ends_a_graph()) return CUDA_ERROR_NOT_PERMITTED;
  if (stack.empty() || stack.back() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  return (*context)->error;
}

CUctx_st* current_context() {
  return stack.empty() ? nullptr : stack.back();
}

CUresult unsafe_while_capturing() {
  if (capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  const std::lock_guard lock(state().mutex);
  for (Session* session : state().captures) {
    const bool is_here =
        session->thread == std::this_thread::get_id() && session->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool is_everywhere =
        session->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!is_here && !is_everywhere) continue;
    session->is_invalid = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

void fake_cuda_set(const char* what, long value) {
  const std::lock_guard lock(state().mutex);
  state().settings[what] = value;
}

long fake_cuda_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  return state().calls[function];
}

void fake_cuda_count(const char* what, long more) {
  const std::lock_guard lock(state().mutex);
  state().calls[what] += more;
}

void fake_cuda_forget_calls() {
  const std::lock_guard lock(state().mutex);
  state().calls.clear();
}

long fake_cuda_live(const char* what) {
  const std::string kind = what;
  const std::lock_guard lock(state().mutex);
  long memory = 0, allocations = 0, imports = 0, registered = 0, pinned = 0;
  for (const auto& [base, region] : state().regions) {
    if (region.is_import) ++imports;
    if (region.where == Where::registered) ++registered;
    if (region.where == Where::pinned) pinned += static_cast<long>(region.bytes);
    if (region.where == Where::device && !region.is_import) memory += static_cast<long>(region.bytes);
    if (region.where != Where::registered && !region.is_import) ++allocations;
  }
  if (kind == "memory") return memory;
  if (kind == "pinned") return pinned;
  if (kind == "allocations") return allocations;
  if (kind == "imports") return imports;
  if (kind == "registered") return registered;
  if (kind == "streams") return static_cast<long>(state().streams.size());
  if (kind == "graphs") return state().graphs;
  if (kind == "events") return static_cast<long>(state().events.size());
  return -1;
}

void fake_cuda_kernel(const char* name, size_t parameter_bytes,
                      void (*run)(const void*, unsigned, unsigned)) {
  add_kernel(name, parameter_bytes, run);
}

CUresult cuInit(unsigned flags) {
  called(__func__);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (device_count() == 0) return CUDA_ERROR_NO_DEVICE;
  const std::lock_guard lock(state().mutex);
  state().is_initialised = true;
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = driver_version();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  static const std::map<int, const char*> names{
      {0, "CUDA_SUCCESS"},
      {1, "CUDA_ERROR_INVALID_VALUE"},
      {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
      {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
      {100, "CUDA_ERROR_NO_DEVICE"},
      {101, "CUDA_ERROR_INVALID_DEVICE"},
      {201, "CUDA_ERROR_INVALID_CONTEXT"},
      {400, "CUDA_ERROR_INVALID_HANDLE"},
      {500, "CUDA_ERROR_NOT_FOUND"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
      {719, "CUDA_ERROR_LAUNCH_FAILED"},
      {800, "CUDA_ERROR_NOT_PERMITTED"},
      {801, "CUDA_ERROR_NOT_SUPPORTED"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
      {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
      {907, "CUDA_ERROR_CAPTURED_EVENT"},
  };
  const auto it = names.find(error);
  *text = it == names.end() ? "CUDA_ERROR_OF_THE_DOUBLE" : it->second;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "says the double";
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  called(__func__);
  if (const CUresult result = need_driver(); result != CUDA_SUCCESS) return result;
  *count = device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (const CUresult result = need_driver(); result != CUDA_SUCCESS) return result;
  if (ordinal < 0 || ordinal >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  std::snprintf(name, static_cast<size_t>(size), "Double %d", device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 3;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 4;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = 1 + device;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = 512;  // bits
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = 1'000'000;  // kHz
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *value = 0x7fffffff;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
      *value = 1;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      *value = static_cast<int>(setting("vmm", 1));
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
      *value = static_cast<int>(setting("memops", 1));
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
      *value = static_cast<int>(setting("long_kernels_end", 0));
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
      *value = static_cast<int>(setting("mps", 0));
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
      *value = static_cast<int>(setting("dma_buf", 1));
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
      *value = static_cast<int>(setting("gpu_direct", 1));
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
      *value = static_cast<int>(setting("mapped_rdma", 1));
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
      *value = setting("rdma_flush", 1) != 0 ? CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST : 0;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
      *value = static_cast<int>(setting("rdma_order", CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE));
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice a, CUdevice b) {
  *can = a != b && setting("peer_access", 1) != 0;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  called(__func__);
  if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(state().mutex);
  auto& contexts = state().contexts;
  contexts.resize(std::max<size_t>(contexts.size(), static_cast<size_t>(device_count())));
  auto& mine = contexts[static_cast<size_t>(device)];
  if (mine == nullptr) {
    mine = std::make_unique<CUctx_st>();
    mine->ordinal = device;
  }
  ++mine->uses;
  *context = mine.get();
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  FAKE_CALLED();
  if (device < 0 || device >= device_count()) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(state().mutex);
  const auto& contexts = state().contexts;
  const auto index = static_cast<size_t>(device);
  *flags = 0;
  *active = index < contexts.size() && contexts[index] != nullptr && contexts[index]->uses > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context) {
  called(__func__);
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext* context) {
  if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (const CUresult result = need_driver(); result != CUDA_SUCCESS) return result;
  *context = stack.empty() ? nullptr : stack.back();
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice* device) {
  FAKE_CONTEXT(context);
  *device = context->ordinal;
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  FAKE_CONTEXT(context);
  if (flags != 0 || peer == context) return CUDA_ERROR_INVALID_VALUE;
  if (setting("peer_access", 1) == 0) return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  const std::lock_guard lock(state().mutex);
  return context->peers.insert(peer->ordinal).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return CUDA_SUCCESS;
}
}
