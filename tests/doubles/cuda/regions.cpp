#include "regions.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "fake_driver.hpp"

namespace fake_cuda {
namespace {

constexpr long memory_of_a_gpu = 4L << 30;  // pages come with use

// Of larger memory the rest stays zero, and takes no pages.
constexpr uint64_t most_left_over = uint64_t{256} << 10;

constexpr char left_over = '\xa5';

// A GPU's memory is not cleared for who gets it.
bool leave_something_in(int fd, uint64_t bytes) {
  const std::string bits(std::min(bytes, most_left_over), left_over);
  return pwrite(fd, bits.data(), bits.size(), 0) == static_cast<ssize_t>(bits.size());
}

}  // namespace

void leave_something(void* memory, uint64_t bytes) {
  std::memset(memory, left_over, std::min(bytes, most_left_over));
}

uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}
void* pointer(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

uint64_t reserve(uint64_t bytes) {
  void* address = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return address == MAP_FAILED ? 0 : reinterpret_cast<uint64_t>(address);
}

long memory_limit() {
  return setting("memory", memory_of_a_gpu);
}

bool fits(uint64_t bytes) {
  return fake_cuda_live("memory") + static_cast<long>(bytes) <= memory_limit();
}

bool fits_pinned(uint64_t bytes) {
  const long limit = setting("pinned_memory", 0);
  return limit == 0 || fake_cuda_live("pinned") + static_cast<long>(bytes) <= limit;
}

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
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(round_up(bytes, page))) == 0 && leave_something_in(fd, bytes))
    return fd;
  close(fd);
  return -1;
}

void add_region(Region region) {
  const std::lock_guard lock(state().mutex);
  region.id = state().next_id++;
  state().freed.erase(region.base);
  state().regions[region.base] = region;
}

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

Region* region_at(uint64_t address) {
  auto it = state().regions.upper_bound(address);
  if (it == state().regions.begin()) return nullptr;
  --it;
  return address - it->first < it->second.bytes ? &it->second : nullptr;
}

bool is_in_reach(CUctx_st* context, uint64_t address) {
  const std::lock_guard lock(state().mutex);
  const Region* region = region_at(address);
  if (region == nullptr || region->where != Where::device) return true;
  if (region->is_mapped_memory) return region->reader == context->ordinal;
  return region->ordinal == context->ordinal || context->peers.contains(region->ordinal);
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
