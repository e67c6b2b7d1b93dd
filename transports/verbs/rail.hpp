// One open port of this rank, and what all its connections share: memory for receiving and sending small messages, one
// completion queue, one receive queue.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/unique_fd.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/port.hpp"

namespace epccl::transports::verbs {

struct RailOptions {
  size_t buffer_bytes = 8 << 10;  // of a message with its header
  int receive_buffers = 512, send_slots = 256;
  size_t acknowledge_every = 32;  // requests of a queue pair
  double silence = 5.0;           // seconds without an answer that break a queue pair, at least
};

/// What goes with EPERM and ENOMEM of a registration: the limit on locked memory, and the command that raises it.
Status registration_error(int errno_value, const std::string& port, size_t bytes);

/// In the id of a work request: it is a receive, and the rest is its buffer.
inline constexpr uint64_t received_mark = uint64_t{1} << 63;

class Rail {
 public:
  static Result<std::unique_ptr<Rail>> open(const Library& library, OpenPort port,
                                            const RailOptions& options);
  Rail(const Rail&) = delete;
  Rail& operator=(const Rail&) = delete;

  const Library& library() const { return library_; }
  const Port& port() const { return port_; }
  size_t acknowledge_every() const { return options_.acknowledge_every; }
  double silence() const { return options_.silence; }
  ibv_pd* domain() const { return domain_.get(); }
  ibv_cq* queue() const { return queue_.get(); }
  ibv_srq* receives() const { return receives_.get(); }

  // Receive buffers: one is taken by every message and every signal that comes, and goes back when it has been read.
  std::span<const std::byte> buffer(uint32_t index) const {
    return {memory_.get() + index * options_.buffer_bytes, options_.buffer_bytes};
  }
  void give_back(uint32_t index);
  /// Posts what was given back, many at once.
  Status repost();
  Status repost_if_many() {
    constexpr size_t many = 16;
    return given_back_.size() < many ? Status() : repost();
  }

  // Send slots: where a message is put together.
  int take_slot();  // -1: none is free
  void free_slot(int slot) { free_slots_.push_back(slot); }
  std::byte* slot(int index) const {
    return memory_.get() + (static_cast<size_t>(options_.receive_buffers + index)) * options_.buffer_bytes;
  }
  uint32_t key() const { return region_->lkey; }
  /// So few are left that every message should say when its slot is free again.
  bool slots_are_scarce() const { return free_slots_.size() < static_cast<size_t>(options_.send_slots) / 2; }

  /// Work requests that may still be posted without the completion queue running over.
  int room() const { return room_; }
  /// So little is left that every request should say when it is over: many queue pairs, each with a few that do not, would use it up.
  bool room_is_scarce() const { return room_ < all_room_ / 2; }
  void take_room() { --room_; }
  void give_room(int count) { room_ += count; }

  int poll(std::span<ibv_wc> into) {
    return ibv_poll_cq(queue_.get(), static_cast<int>(into.size()), into.data());
  }
  /// The next completion makes fd() readable.
  Status arm();
  int fd() const { return channel_->fd; }
  int event_fd() const { return context_->async_fd; }
  /// Reads what made fd() readable.
  void quiet();
  /// The next event of the device, if there is one: its kind, and whether it is about this port.
  struct Event {
    ibv_event_type type;
    bool this_port;
  };
  bool next_event(Event& event);

 private:
  Rail(const Library& library, OpenPort port, const RailOptions& options);
  Status create();

  const Library& library_;
  const RailOptions options_;
  const Port port_;
  // In the order of their making: destroyed in the other.
  Owned<ibv_context> context_;
  Owned<ibv_pd> domain_;
  std::unique_ptr<std::byte[], void (*)(void*)> memory_;
  Owned<ibv_mr> region_;
  Owned<ibv_comp_channel> channel_;
  Owned<ibv_cq> queue_;
  Owned<ibv_srq> receives_;
  std::vector<int> free_slots_;
  std::vector<uint32_t> given_back_;
  int room_ = 0, all_room_ = 0;
  unsigned unacknowledged_ = 0;
};

}  // namespace epccl::transports::verbs
