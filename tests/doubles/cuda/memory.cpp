// Memory: plain, pinned, registered; CUDA IPC.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "fake_driver.hpp"
#include "regions.hpp"

namespace fake_cuda {
namespace {

struct IpcHandle {
  uint64_t magic, inode, base, bytes;
  int32_t pid, fd, ordinal;
};
constexpr uint64_t ipc_magic = 0x66616b65'69706321;

/// What is open of the exporter's addresses that the handle is of; the state is locked by the caller.
Region* open_import(const IpcHandle& theirs) {
  for (auto& [base, region] : state().regions)
    if (region.is_import && !region.is_mapped_memory && region.exporter == theirs.pid &&
        region.exporter_base < theirs.base + theirs.bytes &&
        theirs.base < region.exporter_base + region.bytes)
      return &region;
  return nullptr;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  FAKE_CONTEXT_TO_ALLOCATE(context);
  if (const CUresult result = unsafe_while_capturing(); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!fits(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Region region;
  region.bytes = bytes;
  region.base = addresses_for(bytes);
  region.ordinal = context->ordinal;
  region.fd = make_memory(bytes);
  region.inode = inode_of(region.fd);
  if (region.base == 0 || region.fd < 0 || !attach(region)) return CUDA_ERROR_OUT_OF_MEMORY;
  add_region(region);
  *address = region.base;
  return CUDA_SUCCESS;
}

CUresult cuMemFree(CUdeviceptr address) {
  FAKE_CONTEXT_ALONE(context);
  if (const CUresult result = unsafe_while_capturing(); result != CUDA_SUCCESS) return result;
  const auto region = take_region(address, Where::device, false);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  detach(*region);
  close(region->fd);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  FAKE_CONTEXT(context);
  *total = static_cast<size_t>(memory_limit());
  *free = *total - static_cast<size_t>(fake_cuda_live("memory"));
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  FAKE_CONTEXT_TO_ALLOCATE(context);
  if (const CUresult result = unsafe_while_capturing(); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!fits_pinned(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory =
      mmap(nullptr, round_up(bytes, page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  leave_something(memory, bytes);
  Region region;
  region.base = reinterpret_cast<uint64_t>(memory);
  region.bytes = bytes;
  region.data = static_cast<std::byte*>(memory);
  region.where = Where::pinned;
  region.ordinal = context->ordinal;
  add_region(region);
  *address = memory;
  return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void* address) {
  FAKE_CONTEXT_ALONE(context);
  const auto region = take_region(reinterpret_cast<uint64_t>(address), Where::pinned, false);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  mprotect(address, round_up(region->bytes, page), PROT_NONE);
  return CUDA_SUCCESS;
}

// The GPU's address of registered memory is another one than the host's.
CUresult cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  FAKE_CONTEXT_TO_ALLOCATE(context);
  if (const CUresult result = unsafe_while_capturing(); result != CUDA_SUCCESS) return result;
  const auto start = reinterpret_cast<uint64_t>(address);
  if (bytes == 0 || start % page != 0 || (flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0)
    return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(state().mutex);
    for (const auto& [base, region] : state().regions) {
      const auto data = reinterpret_cast<uint64_t>(region.data);
      if (region.where == Where::registered && start < data + region.bytes && data < start + bytes)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
  }
  Region region;
  region.base = reserve(round_up(bytes, page));
  region.bytes = bytes;
  region.data = static_cast<std::byte*>(address);
  region.where = Where::registered;
  add_region(region);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* address) {
  FAKE_CONTEXT_ALONE(context);
  const std::lock_guard lock(state().mutex);
  for (auto it = state().regions.begin(); it != state().regions.end(); ++it)
    if (it->second.where == Where::registered && it->second.data == address) {
      state().freed[it->first] = it->second.bytes;
      state().regions.erase(it);
      return CUDA_SUCCESS;
    }
  return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer(CUdeviceptr* device, void* address, unsigned flags) {
  FAKE_CONTEXT(context);
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto start = reinterpret_cast<uint64_t>(address);
  const std::lock_guard lock(state().mutex);
  for (const auto& [base, region] : state().regions) {
    const auto data = reinterpret_cast<uint64_t>(region.data);
    if (region.where == Where::device || start < data || start >= data + region.bytes) continue;
    *device = base + (start - data);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  FAKE_CONTEXT(context);
  const std::lock_guard lock(state().mutex);
  const Region* region = region_at(address);
  const bool is_device = region != nullptr && region->where == Where::device;
  const bool is_reserved = region != nullptr && region->is_mapped_memory;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = region == nullptr ? 0
                                             : is_device       ? CU_MEMORYTYPE_DEVICE
                                                               : CU_MEMORYTYPE_HOST;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = region == nullptr ? 0
                                                : is_reserved     ? region->reserved_base
                                                                  : region->base;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t*>(values[i]) = region == nullptr ? 0
                                           : is_reserved     ? region->reserved_bytes
                                                             : region->bytes;
        break;
      case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *static_cast<unsigned long long*>(values[i]) = region == nullptr ? 0 : region->id;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = region == nullptr ? -2 : region->ordinal;
        break;
      case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *static_cast<int*>(values[i]) = is_device && !region->is_mapped_memory && !region->is_import;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<int*>(values[i]) = is_device && state().settings["managed"] != 0;
        break;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  FAKE_CALLED();
  {
    const std::lock_guard lock(state().mutex);
    if (!state().is_initialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (region_at(address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  }
  return cuPointerGetAttributes(1, &attribute, &value, address);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  FAKE_CONTEXT(context);
  wait_to_export();
  for (const char* refusing : {"export_error", "ipc_export_error"})
    if (const auto refused = static_cast<CUresult>(setting(refusing, 0)); refused != CUDA_SUCCESS)
      return refused;
  const std::lock_guard lock(state().mutex);
  const Region* region = region_at(address);
  if (region == nullptr || region->where != Where::device || region->is_mapped_memory || region->is_import)
    return CUDA_ERROR_INVALID_VALUE;
  const IpcHandle mine{ipc_magic, region->inode, region->base,   region->bytes,
                       getpid(),  region->fd,    region->ordinal};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &mine, sizeof mine);
  return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  FAKE_CONTEXT(context);
  IpcHandle theirs{};
  std::memcpy(&theirs, &handle, sizeof theirs);
  if (theirs.magic != ipc_magic || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
    return CUDA_ERROR_INVALID_VALUE;
  if (theirs.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  if (const auto refused = static_cast<CUresult>(setting("import_error", 0)); refused != CUDA_SUCCESS)
    return refused;
  {
    const std::lock_guard lock(state().mutex);
    if (Region* const known = open_import(theirs)) {
      if (known->inode != theirs.inode) return CUDA_ERROR_ALREADY_MAPPED;
      ++known->uses;
      *address = known->base;
      return CUDA_SUCCESS;
    }
  }
  const std::string path = "/proc/" + std::to_string(theirs.pid) + "/fd/" + std::to_string(theirs.fd);
  Region region;
  region.fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (region.fd < 0 || inode_of(region.fd) != theirs.inode) {
    if (region.fd >= 0) close(region.fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  region.inode = theirs.inode;
  region.bytes = theirs.bytes;
  region.base = addresses_for(theirs.bytes);
  region.ordinal = context->ordinal;
  region.is_import = true;
  region.exporter = theirs.pid;
  region.exporter_base = theirs.base;
  if (!attach(region)) return CUDA_ERROR_MAP_FAILED;
  add_region(region);
  *address = region.base;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  FAKE_CONTEXT_ALONE(context);
  const auto region = take_region(address, Where::device, true);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  if (region->bytes == 0) return CUDA_SUCCESS;  // others have it open
  detach(*region);
  close(region->fd);
  return CUDA_SUCCESS;
}
}
