// Posts and waits of a graph's run (signal_parameters.hpp).
#pragma once

#include "device/kernels/body/shared_words.hpp"
#include "device/kernels/signal_parameters.hpp"

namespace epccl::device::kernels {

/// Waits for one word; what it then is. The host's memory is looked at rarely: it is far away.
EPCCL_DEVICE uint64_t await_word(const SignalParameters& parameters, const GraphWait& wait, uint64_t least) {
  constexpr uint32_t looks_at_host = 64;
  const uint64_t* word = parameters.words + uint64_t{wait.rank} * parameters.slots + wait.slot;
  for (uint32_t round = 0;; ++round) {
    const uint64_t value = load_acquire(word);
    if (value >= least) return value;
    if (round % looks_at_host == looks_at_host - 1 && load_acquire(&parameters.report->given_up) != 0) {
      // Later steps do not wait either: only what the first did not get is why.
      if (load_acquire(&parameters.report->awaited) == 0)
        store_release(&parameters.report->awaited, 1 + (uint64_t{wait.rank} << 16 | wait.slot));
      return 0;
    }
    pause_a_little();
  }
}

template <class Warp>
EPCCL_DEVICE void signals_body(const Warp& warp, const SignalParameters& parameters) {
  typename Warp::template PerLane<uint64_t> passes{};
  warp.each([&](uint32_t lane) { passes[lane] = *parameters.pass + parameters.begins; });
  warp.sync();
  ReplayReport* report = parameters.report;
  warp.each([&](uint32_t lane) {
    const uint64_t pass = passes[lane];
    if (lane == 0) {
      if (parameters.begins != 0) {
        *parameters.pass = pass;
        store_release(&report->call, parameters.posts[0].value);
        store_release(&report->begun, pass);
      }
      store_release(&report->step, pass << pass_shift | parameters.step);
    }
    // A rank after the other: the posts of one are in their order.
    for (uint32_t rank = lane; rank < parameters.ranks; rank += warp_lanes) {
      if (parameters.told[rank] == nullptr) continue;
      for (uint32_t i = 0; i < parameters.post_count; ++i)
        store_release(parameters.told[rank] + parameters.posts[i].slot,
                      pass << pass_shift | parameters.posts[i].value);
    }
  });
  warp.each([&](uint32_t lane) {
    const uint64_t pass = passes[lane];
    for (uint32_t i = lane; i < parameters.wait_count; i += warp_lanes) {
      const GraphWait& wait = parameters.waits[i];
      const uint64_t seen = await_word(parameters, wait, pass << pass_shift | wait.value);
      if (parameters.begins == 0 || seen >> pass_shift != pass ||
          (seen & pass_value_mask) == parameters.posts[0].value)
        continue;
      store_release(&report->their_call, seen & pass_value_mask);
      store_release(&report->other, uint64_t{wait.rank} + 1);
      store_release(&report->given_up, 1);
    }
  });
  warp.sync();
  if (parameters.ends != 0)
    warp.each([&](uint32_t lane) {
      if (lane == 0) store_release(&report->over, passes[lane]);
    });
}

template <class Warp>
EPCCL_DEVICE void host_call_body(const Warp& warp, const HostCallParameters& parameters) {
  constexpr uint32_t looks_at_failure = 16;
  warp.each([&](uint32_t lane) {
    if (lane != 0) return;
    HostCallReport* report = parameters.report;
    // Two graphs that come at once get two numbers, and the host has not made the lower one when the other looks.
    const uint64_t number =
        parameters.says != 0 ? count_up(parameters.count) + 1 : load_acquire(parameters.count);
    if (parameters.says != 0 && load_acquire(&report->over) + 1 < number) {
      store_release(&report->met, number);
    } else if (parameters.says != 0) {
      store_release(&report->call, parameters.call);
      store_release(&report->come, number);
    }
    if (parameters.waits == 0) return;
    for (uint32_t round = 0; load_acquire(&report->over) < number; ++round) {
      if (round % looks_at_failure == 0 && load_acquire(&parameters.replays->given_up) != 0) return;
      pause_a_little();
    }
  });
}

}  // namespace epccl::device::kernels
