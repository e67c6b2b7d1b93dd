// Virtual memory management: physical memory, addresses, and what is mapped where; descriptors.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_driver.hpp"
#include "regions.hpp"

namespace fake_cuda {
namespace {

struct Physical {
  int fd = -1;
  uint64_t bytes = 0, inode = 0;
  int uses = 1;
  int ordinal = 0;
  bool can_export = false, is_import = false, is_for_cards = false;
};
std::map<CUmemGenericAllocationHandle, Physical> physical;  // under the state's mutex
std::map<uint64_t, uint64_t> reserved;                      // base -> bytes
CUmemGenericAllocationHandle next_physical = 1;

void release_physical(CUmemGenericAllocationHandle handle) {
  Physical& memory = physical[handle];
  if (--memory.uses > 0) return;
  close(memory.fd);
  physical.erase(handle);
}
std::map<uint64_t, CUmemGenericAllocationHandle> mapped_of;  // base -> what is mapped there

bool is_mapped(uint64_t address, uint64_t bytes) {
  const auto next = mapped_of.lower_bound(address);
  return next != mapped_of.end() && next->first < address + bytes;
}

/// The reserved range that all of this lies in.
std::map<uint64_t, uint64_t>::iterator reserved_around(uint64_t address, uint64_t bytes) {
  auto it = reserved.upper_bound(address);
  if (it == reserved.begin()) return reserved.end();
  --it;
  return address + bytes <= it->first + it->second ? it : reserved.end();
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = big_page;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  FAKE_CALLED_TO_ALLOCATE();
  if (setting("vmm", 1) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = static_cast<CUresult>(setting("create_error", 0)); result != CUDA_SUCCESS)
    return result;
  if (bytes == 0 || bytes % big_page != 0 || flags != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (prop->allocFlags.gpuDirectRDMACapable != 0) {
    if (setting("mapped_rdma", 1) == 0) return CUDA_ERROR_NOT_SUPPORTED;
    if (const long refused = setting("rdma_create_error", 0); refused != 0)
      return static_cast<CUresult>(refused);
  }
  if (!fits(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Physical memory;
  memory.fd = make_memory(bytes);
  memory.bytes = bytes;
  memory.inode = inode_of(memory.fd);
  memory.ordinal = prop->location.id;
  memory.is_for_cards = prop->allocFlags.gpuDirectRDMACapable != 0;
  memory.can_export = prop->requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  const std::lock_guard lock(state().mutex);
  *handle = next_physical++;
  physical[*handle] = memory;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  FAKE_CALLED();
  const std::lock_guard lock(state().mutex);
  if (physical.find(handle) == physical.end()) return CUDA_ERROR_INVALID_VALUE;
  release_physical(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long flags) {
  FAKE_CALLED();
  if (bytes == 0 || bytes % big_page != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *address = addresses_for(bytes);
  const std::lock_guard lock(state().mutex);
  reserved[*address] = bytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  FAKE_CALLED();
  const std::lock_guard lock(state().mutex);
  const auto it = reserved.find(address);
  if (it == reserved.end() || it->second != bytes || is_mapped(address, bytes))
    return CUDA_ERROR_INVALID_VALUE;
  reserved.erase(it);
  if (state().settings["reuse"] != 0) state().reusable[bytes].push_back(address);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  FAKE_CALLED();
  if (const auto refused = static_cast<CUresult>(setting("map_error", 0)); refused != CUDA_SUCCESS)
    return refused;
  Region region;
  {
    const std::lock_guard lock(state().mutex);
    const auto it = reserved_around(address, bytes);
    const auto memory = physical.find(handle);
    if (it == reserved.end() || is_mapped(address, bytes) || memory == physical.end() || offset != 0 ||
        flags != 0 || memory->second.bytes != bytes)
      return CUDA_ERROR_INVALID_VALUE;
    region.reserved_base = it->first;
    region.reserved_bytes = it->second;
    region.base = address;
    region.bytes = bytes;
    region.fd = memory->second.fd;
    region.inode = memory->second.inode;
    region.ordinal = memory->second.ordinal;
    region.is_mapped_memory = true;
    region.is_accessible = false;
    region.is_import = memory->second.is_import;
    region.is_for_cards = memory->second.is_for_cards;
    ++memory->second.uses;
    mapped_of[address] = handle;
  }
  if (!attach(region)) return CUDA_ERROR_MAP_FAILED;
  add_region(region);
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  FAKE_CALLED();
  const std::lock_guard lock(state().mutex);
  const auto it = state().regions.find(address);
  if (it == state().regions.end() || it->second.bytes != bytes || count != 1 ||
      access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  if (access->location.id != it->second.ordinal && state().settings.contains("peer_access") &&
      state().settings["peer_access"] == 0)
    return CUDA_ERROR_INVALID_DEVICE;
  it->second.is_accessible = true;
  it->second.reader = access->location.id;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  FAKE_CALLED_ALONE();
  Region region;
  {
    const std::lock_guard lock(state().mutex);
    const auto it = state().regions.find(address);
    if (it == state().regions.end() || !it->second.is_mapped_memory || it->second.bytes != bytes)
      return CUDA_ERROR_INVALID_VALUE;
    region = it->second;
    state().regions.erase(it);
    state().freed[address] = bytes;
    release_physical(mapped_of[address]);
    mapped_of.erase(address);
  }
  detach(region);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  FAKE_CALLED();
  wait_to_export();
  for (const char* refusing : {"export_error", "descriptor_export_error"})
    if (const auto refused = static_cast<CUresult>(setting(refusing, 0)); refused != CUDA_SUCCESS)
      return refused;
  const std::lock_guard lock(state().mutex);
  const auto it = physical.find(handle);
  if (it == physical.end() || !it->second.can_export || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      flags != 0)
    return CUDA_ERROR_INVALID_VALUE;
  *static_cast<int*>(out) = fcntl(it->second.fd, F_DUPFD_CLOEXEC, 0);
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* from,
                                        CUmemAllocationHandleType type) {
  FAKE_CALLED();
  const int fd = static_cast<int>(reinterpret_cast<intptr_t>(from));
  struct stat info {};
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || fstat(fd, &info) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (const char* refusing : {"import_error", "descriptor_import_error"})
    if (const auto refused = static_cast<CUresult>(setting(refusing, 0)); refused != CUDA_SUCCESS)
      return refused;
  Physical memory;
  memory.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  memory.bytes = static_cast<uint64_t>(info.st_size);
  memory.inode = info.st_ino;
  memory.is_import = true;
  const std::lock_guard lock(state().mutex);
  for (const auto& [known, own] : physical)  // of this process, maybe of another GPU
    if (own.inode == memory.inode) memory.ordinal = own.ordinal;
  *handle = next_physical++;
  physical[*handle] = memory;
  return CUDA_SUCCESS;
}
}
