// Memory of GPUs that devices read and write where it lies (GPUDirect): by dma-buf, or through a module of the kernel that knows GPU
// addresses (nvidia_peermem). Registered an allocation at a time, and kept as long as it stays what it is.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "device/device.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/memory.hpp"

namespace epccl::transports::verbs {

class DeviceRegion final : public DeviceMemory {
 public:
  DeviceRegion(device::Device& device, uintptr_t begin, uint64_t bytes, std::shared_ptr<const Region> region)
      : device_(device), begin_(begin), bytes_(bytes), region_(std::move(region)) {}

  device::Device& device() const { return device_; }
  const std::shared_ptr<const Region>& region() const { return region_; }
  /// Whether a message lies in it.
  Status check(const void* data, uint64_t bytes) const {
    const uintptr_t at = reinterpret_cast<uintptr_t>(data) - begin_;
    if (at <= bytes_ && bytes <= bytes_ - at) return {};
    return error(Code::invalid_argument, "{} bytes at {} are not in the {} bytes of device memory at {:#x}",
                 bytes, data, bytes_, begin_);
  }

 private:
  device::Device& device_;
  const uintptr_t begin_;
  const uint64_t bytes_;
  const std::shared_ptr<const Region> region_;
};

class DeviceRegistrations {
 public:
  explicit DeviceRegistrations(LentBy ways) : ways_(ways) {}

  Result<std::shared_ptr<const DeviceRegion>> get(const std::vector<std::unique_ptr<Rail>>& rails,
                                                  device::Device& device, const void* data, uint64_t bytes,
                                                  uint64_t& registrations);
  size_t kept() const;
  /// Gives up what the library has freed. Costs next to nothing where nothing was.
  void tidy();

 private:
  /// An allocation: registered, or why it cannot be.
  struct Kept {
    uint64_t generation = 0, used = 0;
    std::shared_ptr<const Region> region;
    Status why;
    double again_at = 0;  // when there may be room that was not
  };
  using Key = std::pair<device::Device*, uint64_t>;  // the allocation's first byte
  using Allocations = std::map<Key, Kept>;

  Result<std::shared_ptr<const Region>> lent(const std::vector<std::unique_ptr<Rail>>& rails,
                                             const device::Device& device, uint64_t begin, uint64_t bytes,
                                             uint64_t& registrations) const;
  static bool is_gone(const Allocations::value_type& entry);
  void look_at_another();
  void make_room();

  // Each pins an allocation, and takes a piece of the device's tables.
  static constexpr size_t most = 256;

  const LentBy ways_;
  Allocations allocations_;
  std::map<device::Device*, uint64_t> frees_;
  Key looked_at_{};
  uint64_t uses_ = 0;
};

}  // namespace epccl::transports::verbs
