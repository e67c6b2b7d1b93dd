// Memory: plain, pinned, registered, mapped; CUDA IPC and descriptors.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "fake_driver.hpp"
#include "state.hpp"

namespace fake_cuda {
namespace {

constexpr uint64_t page = 4096, big_page = uint64_t{2} << 20;
constexpr long memory_of_a_gpu = 4L << 30;  // pages come with use

uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

/// Addresses that nobody can touch.
uint64_t reserve(uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(address);
}

bool fits(uint64_t bytes) {
  const long limit = setting("memory", memory_of_a_gpu);
  return fake_cuda_live("memory") + static_cast<long>(bytes) <= limit;
}

/// Maps the descriptor's bytes behind the reserved addresses (or right there).
bool attach(Region& region) {
  const uint64_t bytes = round_up(region.bytes, page);
  void* wanted = memory_is_open() ? pointer(region.base) : nullptr;
  const int flags = MAP_SHARED | (wanted == nullptr ? 0 : MAP_FIXED);
  void* data = mmap(wanted, bytes, PROT_READ | PROT_WRITE, flags, region.fd, 0);
  if (data == MAP_FAILED) return false;
  region.data = static_cast<std::byte*>(data);
  return true;
}

void detach(const Region& region) {
  if (memory_is_open()) {
    mmap(region.data, round_up(region.bytes, page), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
         0);
  } else if (region.data != nullptr) {
    munmap(region.data, round_up(region.bytes, page));
  }
}

uint64_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

int make_memory(uint64_t bytes) {
  const int fd = memfd_create("fake-cuda", MFD_CLOEXEC);
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(round_up(bytes, page))) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

void add_region(Region region) {
  const std::lock_guard lock(state().mutex);
  region.id = state().next_id++;
  state().freed.erase(region.base);
  state().regions[region.base] = region;
}

/// Takes the region out; its addresses stay dead.
std::optional<Region> take_region(uint64_t base, Where where, bool is_import) {
  const std::lock_guard lock(state().mutex);
  const auto it = state().regions.find(base);
  if (it == state().regions.end() || it->second.where != where || it->second.is_import != is_import ||
      it->second.is_mapped_memory)
    return std::nullopt;
  if (--it->second.uses > 0) return Region{};
  const Region region = it->second;
  state().regions.erase(it);
  state().freed[base] = region.bytes;
  if (state().settings["reuse"] != 0) state().reusable[region.bytes].push_back(base);
  return region;
}

uint64_t addresses_for(uint64_t bytes) {
  {
    const std::lock_guard lock(state().mutex);
    auto& known = state().reusable[bytes];
    if (!known.empty()) {
      const uint64_t base = known.back();
      known.pop_back();
      return base;
    }
  }
  return reserve(round_up(bytes, page));
}

struct IpcHandle {
  uint64_t magic, inode, bytes;
  int32_t pid, fd, ordinal;
};
constexpr uint64_t ipc_magic = 0x66616b65'69706321;

struct Physical {
  int fd = -1;
  uint64_t bytes = 0, inode = 0;
  int uses = 1;
  int ordinal = 0;
  bool can_export = false;
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

}  // namespace

Region* region_at(uint64_t address) {
  auto it = state().regions.upper_bound(address);
  if (it == state().regions.begin()) return nullptr;
  --it;
  return address - it->first < it->second.bytes ? &it->second : nullptr;
}

CUresult find_bytes(uint64_t address, uint64_t bytes, std::byte** data) {
  const std::lock_guard lock(state().mutex);
  if (const Region* region = region_at(address)) {
    const uint64_t offset = address - region->base;
    if (!region->is_accessible || bytes > region->bytes - offset) return CUDA_ERROR_ILLEGAL_ADDRESS;
    *data = region->data + offset;
    return CUDA_SUCCESS;
  }
  auto dead = state().freed.upper_bound(address);
  if (dead != state().freed.begin() && address - (--dead)->first < dead->second)
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  *data = reinterpret_cast<std::byte*>(address);  // the host's
  return CUDA_SUCCESS;
}

}  // namespace fake_cuda

using namespace fake_cuda;

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  FAKE_CONTEXT(context);
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
  FAKE_CONTEXT(context);
  if (const CUresult result = unsafe_while_capturing(); result != CUDA_SUCCESS) return result;
  const auto region = take_region(address, Where::device, false);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  detach(*region);
  close(region->fd);
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free, size_t* total) {
  FAKE_CONTEXT(context);
  *total = static_cast<size_t>(setting("memory", memory_of_a_gpu));
  *free = *total - static_cast<size_t>(fake_cuda_live("memory"));
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  FAKE_CONTEXT(context);
  if (const CUresult result = unsafe_while_capturing(); result != CUDA_SUCCESS) return result;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* memory =
      mmap(nullptr, round_up(bytes, page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
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
  FAKE_CONTEXT(context);
  const auto region = take_region(reinterpret_cast<uint64_t>(address), Where::pinned, false);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  mprotect(address, round_up(region->bytes, page), PROT_NONE);
  return CUDA_SUCCESS;
}

// The GPU's address of registered memory is another one than the host's.
CUresult cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  FAKE_CONTEXT(context);
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
  FAKE_CONTEXT(context);
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
  FAKE_CALLED();
  const std::lock_guard lock(state().mutex);
  if (!state().is_initialised) return CUDA_ERROR_NOT_INITIALIZED;
  const Region* region = region_at(address);
  const bool is_device = region != nullptr && region->where == Where::device;
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = region == nullptr ? 0
                                             : is_device       ? CU_MEMORYTYPE_DEVICE
                                                               : CU_MEMORYTYPE_HOST;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *static_cast<CUdeviceptr*>(values[i]) = region == nullptr ? 0 : region->base;
        break;
      case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *static_cast<size_t*>(values[i]) = region == nullptr ? 0 : region->bytes;
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
  const std::lock_guard lock(state().mutex);
  const Region* region = region_at(address);
  if (region == nullptr || region->where != Where::device || region->is_mapped_memory || region->is_import)
    return CUDA_ERROR_INVALID_VALUE;
  const IpcHandle mine{ipc_magic, region->inode, region->bytes, getpid(), region->fd, region->ordinal};
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
  {
    const std::lock_guard lock(state().mutex);
    for (auto& [base, region] : state().regions)
      if (region.is_import && !region.is_mapped_memory && region.inode == theirs.inode) {
        ++region.uses;
        *address = base;
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
  region.base = reserve(round_up(theirs.bytes, page));
  region.ordinal = context->ordinal;
  region.is_import = true;
  if (!attach(region)) return CUDA_ERROR_MAP_FAILED;
  add_region(region);
  *address = region.base;
  return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  FAKE_CONTEXT(context);
  const auto region = take_region(address, Where::device, true);
  if (!region) return CUDA_ERROR_INVALID_VALUE;
  if (region->bytes == 0) return CUDA_SUCCESS;  // others have it open
  detach(*region);
  close(region->fd);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = big_page;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp* prop,
                     unsigned long long flags) {
  FAKE_CALLED();
  if (setting("vmm", 1) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  if (const CUresult result = static_cast<CUresult>(setting("create_error", 0)); result != CUDA_SUCCESS)
    return result;
  if (bytes == 0 || bytes % big_page != 0 || flags != 0 || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  if (!fits(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  Physical memory;
  memory.fd = make_memory(bytes);
  memory.bytes = bytes;
  memory.inode = inode_of(memory.fd);
  memory.ordinal = prop->location.id;
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
  if (it == reserved.end() || it->second != bytes || mapped_of.contains(address))
    return CUDA_ERROR_INVALID_VALUE;
  reserved.erase(it);
  if (state().settings["reuse"] != 0) state().reusable[bytes].push_back(address);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  FAKE_CALLED();
  Region region;
  {
    const std::lock_guard lock(state().mutex);
    const auto it = reserved.find(address);
    const auto memory = physical.find(handle);
    if (it == reserved.end() || it->second != bytes || memory == physical.end() || offset != 0 ||
        flags != 0 || memory->second.bytes != bytes)
      return CUDA_ERROR_INVALID_VALUE;
    region.base = address;
    region.bytes = bytes;
    region.fd = memory->second.fd;
    region.inode = memory->second.inode;
    region.ordinal = memory->second.ordinal;
    region.is_mapped_memory = true;
    region.is_accessible = false;
    region.is_import = !memory->second.can_export;
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
  it->second.is_accessible = true;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  FAKE_CALLED();
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
  Physical memory;
  memory.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  memory.bytes = static_cast<uint64_t>(info.st_size);
  memory.inode = info.st_ino;
  const std::lock_guard lock(state().mutex);
  *handle = next_physical++;
  physical[*handle] = memory;
  return CUDA_SUCCESS;
}
}
