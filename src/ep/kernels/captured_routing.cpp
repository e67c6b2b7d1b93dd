#include "ep/kernels/captured_routing.hpp"

#include <atomic>
#include <new>

#include "device/host/fp8.hpp"
#include "ep/routing/source_header.hpp"
#include "runtime/engines/kept_memory.hpp"

namespace epccl::ep {

using device::MemoryKind;
using device::kernels::WrongEntry;

Result<std::shared_ptr<CapturedRouting>> CapturedRouting::make(std::shared_ptr<DeviceLayout> layout,
                                                               const Group& group,
                                                               runtime::DeviceRooms& from) {
  std::shared_ptr<CapturedRouting> made(new CapturedRouting(std::move(layout), group, from));
  runtime::KeptMemory::add(made->layout_->records(), made->layout_);
  made->ranks_ = static_cast<size_t>(group.cluster().ranks());
  EPCCL_ASSIGN(made->told_, from.borrow(made->ranks_ * sizeof(WrongEntry)));
  for (size_t rank = 0; rank < made->ranks_; ++rank) new (made->wrong_entries() + rank) WrongEntry{};
  return made;
}

WrongEntry* CapturedRouting::wrong_entries() const {
  return reinterpret_cast<WrongEntry*>(told_->data());
}

Status CapturedRouting::take_wrong(uint32_t k) {
  Status first;
  for (size_t rank = 0; rank < ranks_; ++rank) {
    WrongEntry& entry = wrong_entries()[rank];
    const std::atomic_ref found(entry.found);
    if (found.load(std::memory_order_acquire) == 0) continue;
    if (first.ok())
      first = unused_in_replay(static_cast<int>(rank), entry.at / k, entry.at % k, entry.id, experts_);
    found.store(0, std::memory_order_release);
  }
  return first;
}

RoutingInUse CapturedRouting::in_use(const Handle& handle) const {
  return {handle, shape_of_captured(handle, tokens_), layout_->tables().get(), layout_->tokens_there()};
}

// Graphs keep what they were given; a larger one takes its place for those that come.
Result<KernelRooms::Room> CapturedRouting::reserve(Room& room, uint64_t bytes) {
  if (room == nullptr || room->bytes() < bytes) {
    EPCCL_ASSIGN(room, from_.borrow(bytes, MemoryKind::shareable));
    runtime::KeptMemory::add(room->data(), room);
  }
  return room;
}

Result<KernelRooms> CapturedRouting::rooms(const DispatchCall& call, uint64_t rows, uint64_t k) {
  KernelRooms rooms;
  const uint64_t bytes = rows * call.hidden * bytes_of(call.received_type);
  if (!is_reachable(from_.device(), call.received, bytes)) {
    EPCCL_ASSIGN(rooms.rows, reserve(received_, bytes));
  }
  if (call.received_type == TokenType::float8_e4m3) {
    EPCCL_ASSIGN(rooms.scales, reserve(scales_, rows * device::e4m3_scales(call.hidden) * sizeof(float)));
  }
  if (call.weights.given()) {
    EPCCL_ASSIGN(rooms.weights, reserve(weights_, rows * k * sizeof(float)));
  }
  return rooms;
}

Result<KernelRooms> CapturedRouting::rooms(const CombineCall& call, uint64_t rows) {
  KernelRooms rooms;
  const uint64_t bytes = rows * call.hidden * bytes_of(call.type);
  if (!is_reachable(from_.device(), call.tokens, bytes)) {
    EPCCL_ASSIGN(rooms.rows, reserve(given_, bytes));
  }
  const uint64_t weights = call.weights.rows * call.weights.columns * sizeof(float);
  if (call.weights.given() && !is_reachable(from_.device(), call.weights.data, weights)) {
    EPCCL_ASSIGN(rooms.weights, reserve(given_weights_, weights));
  }
  return rooms;
}

std::shared_ptr<const void> keep(std::shared_ptr<CapturedRouting> routing, const KernelRooms& rooms,
                                 const KernelRooms::Room& other) {
  struct Kept {
    std::shared_ptr<CapturedRouting> routing;
    KernelRooms rooms;
    KernelRooms::Room other;
  };
  return std::make_shared<Kept>(Kept{std::move(routing), rooms, other});
}

}  // namespace epccl::ep
