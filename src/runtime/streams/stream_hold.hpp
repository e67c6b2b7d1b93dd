// A stream of a GPU that waits until this ends: for calls that threads of the library make.
//
//   stream   what it had before | says that it has come | waits for the word | what comes after
//   here                                                       ~StreamHold() or, if need be, the watch ---> the word
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/held_streams.hpp"
#include "runtime/streams/hold_watch.hpp"
#include "runtime/streams/turn_words.hpp"

namespace epccl::runtime {

class StreamHold {
 public:
  /// Nothing is queued yet.
  static Result<std::unique_ptr<StreamHold>> make(device::Device& device);
  StreamHold(const StreamHold&) = delete;
  StreamHold& operator=(const StreamHold&) = delete;
  ~StreamHold();

  /// Before begin(): one of the threads that the stream waits for, of a communicator (device::HeldStreams::Hold).
  void waits_for(HoldWatch::WorkerPtr worker, uint64_t communicator);
  /// The stream says when it has come, and goes on. Watched is then only that who waits for the call hears of peers that are lost.
  Status begin_without_waiting(device::Queue& stream);
  /// What the stream is given from now on waits. After the other one, too.
  Status begin(device::Queue& stream);
  /// Whether the stream has come to it: all that it had before is through. Reads memory.
  bool has_come() const { return has_come(word_); }
  /// What it says then, for queues that wait for the stream themselves.
  device::WordValue come() const { return {word_.come, word_.value}; }
  /// Lets such queues through before the stream has come.
  void let_queues_go();
  /// What these queues post when they are through: the stream goes on then.
  device::WordPost release() const { return {word_.word, word_.value}; }
  /// All that they do is queued, and this word says when they are through. Another thread than begin()'s may say so.
  void is_queued(const device::WordValue& over);
  /// The one whose threads the stream waits for; 0: there are several, or none.
  uint64_t communicator() const { return communicator_; }
  /// Whether it has begun, in either way, so that the stream says when it has come. Any thread.
  bool has_begun() const { return is_coming_.load(std::memory_order_acquire); }

 private:
  Status say_when_it_comes(device::Queue& stream);
  StreamHold(TurnWords& words, const TurnWords::Word& word) : words_(words), word_(word) {}
  static bool has_come(const TurnWords::Word& word) {
    return word.come->load(std::memory_order_acquire) >= word.value;
  }

  TurnWords& words_;
  const TurnWords::Word word_;
  std::vector<HoldWatch::WorkerPtr> workers_;
  std::optional<device::HeldStreams::Hold> held_;
  std::shared_ptr<const void> counted_;  // among the streams that wait (device::Queue::hold)
  std::optional<HoldWatch::Ticket> watched_;
  uint64_t communicator_ = 0;
  struct End {
    std::atomic<const device::SignalWord*> word{nullptr};
    uint64_t value = 0;  // set before the word is
    bool is_known() const { return word.load(std::memory_order_acquire) != nullptr; }
    bool is_there() const { return is_known() && word.load()->load(std::memory_order_acquire) >= value; }
  };
  const std::shared_ptr<End> end_ = std::make_shared<End>();
  std::atomic<bool> is_coming_{false};  // the stream was given the word that says so
  bool says_so_for_it_ = false;         // this did, and the stream will once more
};

}  // namespace epccl::runtime
