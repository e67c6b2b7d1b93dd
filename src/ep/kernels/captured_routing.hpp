// What the calls of one handle share that are captured into graphs: memory that stays, whatever becomes of handle and graphs, and what
// they have in common with each other. Passes of graphs follow one another, so all can use the same.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/status.hpp"
#include "ep/handle/device_layout.hpp"
#include "ep/kernels/kernel_transfer.hpp"
#include "ep/kernels/routing_in_use.hpp"
#include "runtime/streams/device_rooms.hpp"

namespace epccl::ep {

class CapturedRouting {
 public:
  /// Allocates.
  static Result<std::shared_ptr<CapturedRouting>> make(std::shared_ptr<DeviceLayout> layout,
                                                       const Group& group, runtime::DeviceRooms& from);

  DeviceLayout& layout() const { return *layout_; }

  // Of the update that was called last, captured or not.
  void set_tokens(uint32_t tokens) { tokens_ = tokens; }
  uint32_t tokens() const { return tokens_; }

  /// What is wrong with the ranks' tables in replays; kernels write it. Pinned.
  device::kernels::WrongEntry* wrong_entries() const;
  /// The first that nobody was told of; it is forgotten. Any thread.
  Status take_wrong(uint32_t k);

  // Memory of a call: KernelRooms without tables. Allocates what is not there yet.
  Result<KernelRooms> rooms(const DispatchCall& call, uint64_t rows, uint64_t k);
  Result<KernelRooms> rooms(const CombineCall& call, uint64_t rows);

  /// For calls of that update.
  RoutingInUse in_use(const Handle& handle) const;

  /// Those of the dispatch that was captured last, for a weighted combine; null: it brought none.
  const KernelRooms::Room& brought_weights() const { return brought_; }
  void set_brought_weights(KernelRooms::Room weights) { brought_ = std::move(weights); }

 private:
  using Room = KernelRooms::Room;
  CapturedRouting(std::shared_ptr<DeviceLayout> layout, const Group& group, runtime::DeviceRooms& from)
      : layout_(std::move(layout)), experts_(group.options().experts), from_(from) {}
  Result<Room> reserve(Room& room, uint64_t bytes);

  const std::shared_ptr<DeviceLayout> layout_;
  const uint32_t experts_;
  runtime::DeviceRooms& from_;
  Room told_;  // pinned
  size_t ranks_ = 0;
  std::atomic<uint32_t> tokens_ = 0;
  Room received_, scales_, weights_, given_, given_weights_;  // the last that was large enough
  Room brought_;
};

/// What a graph keeps of a call.
std::shared_ptr<const void> keep(std::shared_ptr<CapturedRouting> routing, const KernelRooms& rooms,
                                 const KernelRooms::Room& other = nullptr);

}  // namespace epccl::ep
