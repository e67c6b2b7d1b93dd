// The windows of one peer that this rank has mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "base/status.hpp"
#include "device/host/host_memory.hpp"

namespace epccl::transports {

/// One thread at a time.
class PeerWindows {
 public:
  /// Keeps so many, at least one; where there are more, that which was used least recently gives way. Fewer, where all of the process are
  /// very many, or there is no room to map another.
  explicit PeerWindows(size_t most) : most_(most) {}
  PeerWindows(PeerWindows&&) = default;
  PeerWindows(const PeerWindows&) = delete;
  PeerWindows& operator=(const PeerWindows&) = delete;
  PeerWindows& operator=(PeerWindows&&) = delete;
  ~PeerWindows();

  /// Where `bytes` that begin at `place` lie here. Stays until `most` others were asked for, or, where
  /// fewer are kept, 16.
  Result<std::byte*> address_of(const device::WindowRef& place, uint64_t bytes);

  /// How windows are opened from now on; before that by device::open_window().
  using Open = std::function<Result<UniqueFd>(const device::WindowRef&)>;
  void open_by(Open open) { open_ = std::move(open); }

 private:
  struct Mapping {
    int32_t fd = -1;
    std::byte* address = nullptr;
    uint64_t size = 0;
    uint64_t last_use = 0;
  };
  Result<std::byte*> map(const device::WindowRef& place, uint64_t bytes);
  void unmap(std::unordered_map<uint64_t, Mapping>::iterator entry);
  void drop_oldest();

  const size_t most_;
  Open open_ = device::open_window;
  uint64_t uses_ = 0;
  std::unordered_map<uint64_t, Mapping> by_inode_;
};

}  // namespace epccl::transports
