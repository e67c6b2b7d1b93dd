// Memory that devices may read and write: registered with every rail, and kept registered as long as it stays what it is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "device/device.hpp"
#include "transports/verbs/memory_watch.hpp"
#include "transports/verbs/rail.hpp"

namespace epccl::transports::verbs {

/// How memory of GPUs may be registered.
enum class LentBy : uint8_t { nothing, descriptor, address, either };

/// A range of memory, registered with every rail.
class Region {
 public:
  /// All rails or none: what was registered when one refuses is given up again.
  static Result<std::shared_ptr<const Region>> create(const std::vector<std::unique_ptr<Rail>>& rails,
                                                      uintptr_t begin, size_t bytes, bool written);
  /// The same of a GPU's memory: by its descriptor or, where that is refused, its address. The error names both reasons.
  static Result<std::shared_ptr<const Region>> of_device(const std::vector<std::unique_ptr<Rail>>& rails,
                                                         const device::LentMemory& memory, LentBy ways);

  uint32_t local_key(size_t rail) const { return regions_[rail]->lkey; }
  uint32_t remote_key(size_t rail) const { return regions_[rail]->rkey; }
  /// Of a GPU's memory, by what: "dma-buf" or "nvidia_peermem".
  const char* way() const { return way_; }

 private:
  Status by_descriptor(const std::vector<std::unique_ptr<Rail>>& rails, const device::LentMemory& memory);
  Status by_address(const std::vector<std::unique_ptr<Rail>>& rails, const device::LentMemory& memory);

  std::vector<Owned<ibv_mr>> regions_;
  const char* way_ = "";
};

/// The registrations of a transport. Memory is looked up here before each message that needs it.
class RegisteredMemory {
 public:
  /// Which memory stays registered. Other memory is registered for each message, which is slow and right.
  enum class Keep : uint8_t {
    nothing,
    windows,  // epcclMemAlloc's: it is known when that is freed
    watched,  // and where changes of memory are heard of (memory_watch.hpp) all
  };
  explicit RegisteredMemory(Keep keep) : keep_(keep) {}

  /// `written`: by peers.
  Result<std::shared_ptr<const Region>> get(const std::vector<std::unique_ptr<Rail>>& rails, const void* data,
                                            size_t bytes, bool written, uint64_t& registrations);
  size_t kept() const { return regions_.size(); }
  /// Gives up what has been freed: until then it stays pinned. Costs next to nothing where nothing has.
  void tidy();

 private:
  struct Kept {
    uintptr_t end = 0;
    uint64_t window = 0;  // the inode of epcclMemAlloc's memory; 0: other memory
    std::shared_ptr<const Region> region;
    uint64_t used = 0;
  };
  void hear_of_changes();
  void forget(MemoryWatch::Range range);
  void forget_freed_windows();
  void make_room();

  // Each pins its pages, and a piece of the device's tables.
  static constexpr size_t most = 512;

  const Keep keep_;
  MemoryWatch* watch_ = nullptr;
  bool looked_for_watch_ = false;
  uint64_t position_ = 0, uses_ = 0, windows_freed_ = 0;
  std::map<uintptr_t, Kept> regions_;  // by begin; they may overlap
};

}  // namespace epccl::transports::verbs
