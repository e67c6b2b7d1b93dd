// Captured calls of a handle that a thread of the library makes at each run of their graph (runtime/engines/replayed_calls.hpp): where
// there are several nodes, whose messages are the host's, or no kernels are to make them. They are the calls as they are made outside
// of a graph, with the handle's one routing: graphs keep the handle, and what all of them have to tell is kept here.
//
//   capture   what ranks must agree on, and arguments  --> told by the call
//   replay    what is wrong with a table, no routing   --> kept for who asks
//             arguments that do not fit the routing    --> the communicator has failed
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/status.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/calls/transfer.hpp"
#include "ep/handle/handle.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::ep {

class ReplayedRouting {
 public:
  /// `handle`: of static mode.
  explicit ReplayedRouting(std::shared_ptr<Handle> handle) : handle_(std::move(handle)) {}

  Handle& handle() const { return *handle_; }

  /// Of the update that was called last, captured or not. Any thread.
  void set_tokens(uint32_t tokens) { tokens_ = tokens; }

  // While a call is captured, from work of the communicator:
  /// Collective. `agreed`: what all ranks found alike is wrong with updates of such tables.
  Status agree_on_update(const TopK& sizes, Status& agreed);
  // Against the update that was called last. An error breaks the communicator.
  Status check(const DispatchCall& call);
  Status check(const CombineCall& call);

  // Calls of graphs follow one another, so all that are captured use the largest memory that one of them has borrowed, by purpose.
  enum class Kind : uint8_t { dispatch, combine };
  void share(KernelRooms& rooms, Kind kind);
  void share(KernelRooms::Room& staging) { share_one(staging, staging_); }

  // At a run of the graph, from work of the communicator:
  /// Collective. False: it came to nothing on any rank.
  Result<bool> update(const TopK& topk, bool on_device);
  /// Whether dispatches and combines have a routing; the same on every rank.
  bool has_routing();

  /// What all ranks have found alike in replays, the first since it was asked for; then it is forgotten. Any thread.
  Status take_error();

 private:
  static void share_one(KernelRooms::Room& room, KernelRooms::Room& shared);
  CallShape shape() const;
  void keep(Status error);

  const std::shared_ptr<Handle> handle_;
  std::atomic<uint32_t> tokens_ = 0;
  bool brings_weights_ = false;  // the dispatch that was captured last
  std::array<KernelRooms, 2> shared_;
  KernelRooms::Room staging_;
  std::mutex mutex_;
  Status first_error_;
};

}  // namespace epccl::ep
