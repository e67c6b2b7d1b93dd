#include "runtime/streams/device_rooms.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "device/held_streams.hpp"

namespace epccl::runtime {
namespace {

/// What is allocated for a call that borrows so many bytes: calls that need a little more or less can use it, too, and it costs little more.
uint64_t room_for(uint64_t bytes) {
  constexpr uint64_t least = 4096, doubled_below = 1 << 20;
  if (bytes <= doubled_below) return std::bit_ceil(std::max(bytes, least));
  const uint64_t unit = std::bit_floor(bytes) / 8;
  return (bytes + unit - 1) / unit * unit;  // NOLINT(clang-analyzer-core.DivideZero): bytes are many
}

}  // namespace

DeviceRoom::DeviceRoom(DeviceRoom&& other) noexcept
    : device_(other.device_),
      kind_(other.kind_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceRoom::~DeviceRoom() {
  if (data_ != nullptr) static_cast<void>(device_->free(data_));
}

Status DeviceRoom::reserve(uint64_t bytes) {
  if (bytes <= bytes_) return {};
  EPCCL_ASSIGN(void* larger, device_->allocate(kind_, bytes));
  if (data_ != nullptr) static_cast<void>(device_->free(data_));
  data_ = static_cast<std::byte*>(larger);
  bytes_ = bytes;
  return {};
}

struct DeviceRooms::Kept {
  std::mutex mutex;
  std::vector<std::unique_ptr<DeviceRoom>> memory;
  /// What suits a call that borrows so many bytes, or comes close; null: nothing.
  std::unique_ptr<DeviceRoom> take(uint64_t bytes, device::MemoryKind kind);
};

DeviceRooms::DeviceRooms(device::Device& device) : device_(device), kept_(std::make_shared<Kept>()) {}

DeviceRooms::~DeviceRooms() = default;

// One that is not much larger; else the largest that is not much smaller, which is to grow: sizes that vary from call to call leave one room.
std::unique_ptr<DeviceRoom> DeviceRooms::Kept::take(uint64_t bytes, device::MemoryKind kind) {
  const std::lock_guard lock(mutex);
  const auto fits = [bytes](const DeviceRoom& room) { return room.bytes() >= bytes; };
  const auto is_better = [&](const DeviceRoom& one, const DeviceRoom& other) {
    if (fits(one) != fits(other)) return fits(one);
    return fits(one) ? one.bytes() < other.bytes() : one.bytes() > other.bytes();
  };
  auto best = memory.end();
  for (auto it = memory.begin(); it != memory.end(); ++it) {
    const DeviceRoom& room = **it;
    if (room.kind() != kind || room.bytes() > 2 * room_for(bytes) || room.bytes() < bytes / 2) continue;
    if (best == memory.end() || is_better(room, **best)) best = it;
  }
  if (best == memory.end()) return nullptr;
  std::unique_ptr<DeviceRoom> found = std::move(*best);
  memory.erase(best);
  return found;
}

Result<DeviceRooms::Borrowed> DeviceRooms::borrow(uint64_t bytes, device::MemoryKind kind) {
  std::unique_ptr<DeviceRoom> found = kept_->take(bytes, kind);
  if (found == nullptr) found = std::make_unique<DeviceRoom>(device_, kind);
  if (found->bytes() < bytes || found->data() == nullptr) {
    const device::HeldStreams::Quiet quiet;
    EPCCL_TRY(found->reserve(room_for(bytes)));
  }
  return Borrowed(found.release(), [kept = kept_](DeviceRoom* memory) {
    const std::lock_guard lock(kept->mutex);
    kept->memory.emplace_back(memory);
  });
}

}  // namespace epccl::runtime
