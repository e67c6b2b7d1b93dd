#include "runtime/streams/stream_hold.hpp"

#include <algorithm>
#include <utility>

namespace epccl::runtime {

Result<std::unique_ptr<StreamHold>> StreamHold::make(device::Device& device) {
  TurnWords& words = TurnWords::of(device);
  EPCCL_ASSIGN(const TurnWords::Word word, words.take());
  return std::unique_ptr<StreamHold>(new StreamHold(words, word));  // private constructor
}

// The stream goes on at once; the word is given back when the watch, which may be busy, does not store to it any more.
StreamHold::~StreamHold() {
  word_.word->store(word_.value, std::memory_order_release);
  watched_.reset();
  // Where the stream has yet to write its word nobody can use it again.
  if (!says_so_for_it_) words_.end(word_, has_begun());
}

void StreamHold::waits_for(HoldWatch::WorkerPtr worker, uint64_t communicator) {
  communicator_ = workers_.empty() || communicator == communicator_ ? communicator : 0;
  if (std::ranges::find(workers_, worker) == workers_.end()) workers_.push_back(std::move(worker));
}

Status StreamHold::say_when_it_comes(device::Queue& stream) {
  if (has_begun()) return {};
  EPCCL_TRY(stream.post(*word_.come, word_.value));
  is_coming_.store(true, std::memory_order_release);
  return {};
}

void StreamHold::let_queues_go() {
  if (has_come()) return;
  says_so_for_it_ = true;
  word_.come->store(word_.value, std::memory_order_release);
}

void StreamHold::is_queued(const device::WordValue& over) {
  end_->value = over.at_least;
  end_->word.store(over.word, std::memory_order_release);
  held_->stream_needs_no_thread();
}

Status StreamHold::begin_without_waiting(device::Queue& stream) {
  held_.emplace();
  const TurnWords::Word word = word_;
  watched_.emplace(HoldWatch::Hold{
      workers_,
      [word] { return has_come(word); },
      [] {},
      HoldWatch::Waits::queues,
      [end = end_] { return end->is_there(); },
  });
  return say_when_it_comes(stream);
}

Status StreamHold::begin(device::Queue& stream) {
  if (!held_) held_.emplace();
  held_->stream_waits(communicator_);
  if (end_->is_known()) held_->stream_needs_no_thread();  // it was queued meanwhile
  counted_ = stream.hold();
  const TurnWords::Word word = word_;
  watched_.emplace(HoldWatch::Hold{
      workers_,
      [word] { return has_come(word); },
      [word] { word.word->store(word.value, std::memory_order_release); },
      HoldWatch::Waits::stream,
      [end = end_] { return end->is_there(); },
      [end = end_] { return end->is_known(); },
  });
  EPCCL_TRY(say_when_it_comes(stream));
  return stream.wait(*word_.word, word_.value);
}

}  // namespace epccl::runtime
