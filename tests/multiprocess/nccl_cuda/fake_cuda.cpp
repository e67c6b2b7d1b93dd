#include "fake_cuda.hpp"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace {

struct Block {
  size_t bytes = 0;
  bool pinned = false;
};

std::mutex mutex;
std::map<uintptr_t, Block> blocks;
thread_local std::vector<void*> contexts;  // the last is current

constexpr int success = 0, invalid_value = 1, no_device = 100, invalid_context = 201;

/// FAKE_CUDA_DEVICES: 1 unless set.
int devices() {
  const char* value = std::getenv("FAKE_CUDA_DEVICES");
  return value == nullptr ? 1 : std::atoi(value);
}

}  // namespace

extern "C" {

void* fake_cuda_allocate(size_t bytes, bool pinned) {
  void* memory = std::calloc(1, bytes);
  const std::lock_guard lock(mutex);
  blocks[reinterpret_cast<uintptr_t>(memory)] = {bytes, pinned};
  return memory;
}

void fake_cuda_free(void* memory) {
  const std::lock_guard lock(mutex);
  blocks.erase(reinterpret_cast<uintptr_t>(memory));
  std::free(memory);
}

int cuInit(unsigned) {
  return devices() > 0 ? success : no_device;
}

int cuDeviceGetCount(int* count) {
  *count = devices();
  return success;
}

int cuPointerGetAttribute(void* data, int, unsigned long long pointer) {
  const std::lock_guard lock(mutex);
  auto it = blocks.upper_bound(static_cast<uintptr_t>(pointer));
  if (it == blocks.begin()) return invalid_value;
  --it;
  if (pointer - it->first >= it->second.bytes) return invalid_value;
  *static_cast<unsigned*>(data) = it->second.pinned ? 1 : 2;
  return success;
}

int cuCtxGetCurrent(void** context) {
  *context = contexts.empty() ? nullptr : contexts.back();
  return success;
}

int cuCtxPushCurrent_v2(void* context) {
  contexts.push_back(context);
  return success;
}

int cuCtxPopCurrent_v2(void** context) {
  if (contexts.empty()) return invalid_context;
  *context = contexts.back();
  contexts.pop_back();
  return success;
}

int cuCtxSetCurrent(void* context) {
  if (!contexts.empty()) contexts.pop_back();
  if (context != nullptr) contexts.push_back(context);
  return success;
}
}
