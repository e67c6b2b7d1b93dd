// Memory that calls on a device borrow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "device/device.hpp"

namespace epccl::runtime {

/// Host memory that a device copies from and to, or the device's own; grows.
class DeviceRoom {
 public:
  explicit DeviceRoom(device::Device& device, device::MemoryKind kind = device::MemoryKind::pinned)
      : device_(&device), kind_(kind) {}
  DeviceRoom(DeviceRoom&& other) noexcept;
  DeviceRoom& operator=(DeviceRoom&&) = delete;
  ~DeviceRoom();
  /// At least `bytes`; what was in it is lost when it grows.
  Status reserve(uint64_t bytes);
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  device::MemoryKind kind() const { return kind_; }

 private:
  device::Device* device_;
  device::MemoryKind kind_;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class DeviceRooms {
 public:
  explicit DeviceRooms(device::Device& device);
  DeviceRooms(const DeviceRooms&) = delete;
  DeviceRooms& operator=(const DeviceRooms&) = delete;
  ~DeviceRooms();

  device::Device& device() const { return device_; }
  /// Memory for one call. To be borrowed before the call's turn: to allocate may wait for what the device does, and that
  /// may be waiting for this call. For the same reason it is kept when it comes back. Any thread.
  using Borrowed = std::shared_ptr<DeviceRoom>;
  Result<Borrowed> borrow(uint64_t bytes, device::MemoryKind kind = device::MemoryKind::pinned);

 private:
  struct Kept;

  device::Device& device_;
  const std::shared_ptr<Kept> kept_;
};

}  // namespace epccl::runtime
