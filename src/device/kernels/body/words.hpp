// Waits and posts of a call (WordParameters).
#pragma once

#include "device/kernels/body/shared_words.hpp"
#include "device/kernels/signal_parameters.hpp"

namespace epccl::device::kernels {

/// Who posts raises the near word first, but a host that lets everybody through raises the other alone: that is far away, and looked at rarely.
EPCCL_DEVICE void await_word(const AwaitedWord& awaited) {
  constexpr uint32_t looks_far_away = 16;
  for (uint32_t round = 1;; ++round) {
    if (awaited.near != nullptr && load_acquire(awaited.near) >= awaited.at_least) return;
    if ((awaited.near == nullptr || round % looks_far_away == 0) &&
        load_acquire(awaited.word) >= awaited.at_least)
      return;
    pause_a_little();
  }
}

template <class Warp>
EPCCL_DEVICE void words_body(const Warp& warp, const WordParameters& parameters) {
  warp.each([&](uint32_t lane) {
    for (uint32_t i = lane; i < parameters.awaited_count; i += warp_lanes) await_word(parameters.awaited[i]);
  });
  warp.sync();
  warp.each([&](uint32_t lane) {
    if (lane != 0) return;
    for (uint32_t i = 0; i < parameters.raised_count; ++i) {
      const RaisedWord& raised = parameters.raised[i];
      if (raised.near != nullptr) store_release(raised.near, raised.value);
      store_release(raised.word, raised.value);
    }
  });
}

}  // namespace epccl::device::kernels
