#include "transports/shm/peer_windows.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>

namespace epccl::transports {
namespace {

// To bring in all pages of a window at once saves a fault for each, but pages that nobody has touched it makes.
constexpr uint64_t brought_in_at_once = 64 << 20;

device::Pages pages_for(const device::WindowRef& place, uint64_t bytes) {
  const bool is_most = bytes >= place.size / 2;
  return is_most || place.size <= brought_in_at_once ? device::Pages::all : device::Pages::as_touched;
}

// A process may have 65530 mappings in all, and needs most of them for itself. Whatever a peer has freed stays mapped, without its memory,
// until it gives way.
constexpr size_t most_of_process = 16384;
std::atomic<size_t> mapped_by_process{0};

// A call uses no more of one peer at once.
constexpr size_t least_kept = 16;

}  // namespace

PeerWindows::~PeerWindows() {
  while (!by_inode_.empty()) unmap(by_inode_.begin());
}

void PeerWindows::unmap(std::unordered_map<uint64_t, Mapping>::iterator entry) {
  munmap(entry->second.address, entry->second.size);
  by_inode_.erase(entry);
  mapped_by_process.fetch_sub(1, std::memory_order_relaxed);
}

Result<std::byte*> PeerWindows::address_of(const device::WindowRef& place, uint64_t bytes) {
  const auto known = by_inode_.find(place.inode);
  if (known != by_inode_.end()) {
    Mapping& mapping = known->second;
    if (mapping.fd == place.fd && mapping.size == place.size) {
      mapping.last_use = ++uses_;
      return mapping.address + place.offset;
    }
    // Another window with the number of one that is gone.
    unmap(known);
  }
  EPCCL_ASSIGN(std::byte* const address, map(place, bytes));
  const bool is_crowded = mapped_by_process.fetch_add(1, std::memory_order_relaxed) >= most_of_process;
  if (by_inode_.size() >= most_ || (is_crowded && by_inode_.size() > least_kept)) drop_oldest();
  by_inode_[place.inode] = {place.fd, address, place.size, ++uses_};
  return address + place.offset;
}

// Where the process has no mappings left others give theirs.
Result<std::byte*> PeerWindows::map(const device::WindowRef& place, uint64_t bytes) {
  EPCCL_ASSIGN(const UniqueFd window, open_(place));
  Result<std::byte*> address = device::map_window(window, place, pages_for(place, bytes));
  if (address.ok() || by_inode_.size() <= least_kept) return address;
  while (by_inode_.size() > least_kept) drop_oldest();
  return device::map_window(window, place, pages_for(place, bytes));
}

void PeerWindows::drop_oldest() {
  const auto oldest =
      std::ranges::min_element(by_inode_, {}, [](const auto& entry) { return entry.second.last_use; });
  unmap(oldest);
}

}  // namespace epccl::transports
