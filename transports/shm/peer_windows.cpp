#include "transports/shm/peer_windows.hpp"

#include <sys/mman.h>

#include <algorithm>

namespace epccl::transports {
namespace {

// To bring in all pages of a window at once saves a fault for each, but pages that nobody has touched it makes.
constexpr uint64_t brought_in_at_once = 64 << 20;

device::Pages pages_for(const device::WindowRef& place, uint64_t bytes) {
  const bool is_most = bytes >= place.size / 2;
  return is_most || place.size <= brought_in_at_once ? device::Pages::all : device::Pages::as_touched;
}

}  // namespace

PeerWindows::~PeerWindows() {
  for (const auto& [inode, mapping] : by_inode_) munmap(mapping.address, mapping.size);
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
    munmap(mapping.address, mapping.size);
    by_inode_.erase(known);
  }
  EPCCL_ASSIGN(std::byte* const address, device::map_window(place, pages_for(place, bytes)));
  if (by_inode_.size() >= most_) drop_oldest();
  by_inode_[place.inode] = {place.fd, address, place.size, ++uses_};
  return address + place.offset;
}

void PeerWindows::drop_oldest() {
  const auto oldest =
      std::ranges::min_element(by_inode_, {}, [](const auto& entry) { return entry.second.last_use; });
  munmap(oldest->second.address, oldest->second.size);
  by_inode_.erase(oldest);
}

}  // namespace epccl::transports
