// Calls whose queues wait for the user's stream, and it for them, so that no thread has to see the stream come: all of a call is queued as
// soon as its ranks have called.
//
//   user's stream      ... raises a word --------------------------------------> waits for the end, goes on
//   queues                 wait for it, say so | wait for peers that say so | copies, sums, signals | end
//   library's thread   meets the node, queues all that | tells who called | sees the end
//   who calls          waits for that ----------------------------------------> has the stream wait for the end, returns
#pragma once

#include <functional>
#include <vector>

#include "device/device.hpp"

namespace epccl::runtime {

/// Stays, as what it points to does, until the call is over.
struct QueuedBehind {
  device::WordValue come{};           // the stream has come; its memory is never given back
  device::QueueEvent* end = nullptr;  // to be recorded behind all of the call; null: nobody asks
  /// To be posted when all of the call is through, before the call's own word is: what a stream that is held waits for.
  device::WordPost release{};
  /// To be told when all of it is queued, and which word says that it is over; not on failure. That word's memory stays as long as this.
  std::function<void(device::WordValue over)> queued;
  std::function<void()> let_go;  // of a call that has failed: its queues wait for the stream no longer
};

/// What the last queue of a call posts when it is through: who sees `over`, the last, may use the word of `release` for another call.
inline std::vector<device::WordPost> last_posts(const QueuedBehind* behind, const device::WordPost& over) {
  if (behind == nullptr || behind->release.word == nullptr) return {over};
  return {behind->release, over};
}

}  // namespace epccl::runtime
