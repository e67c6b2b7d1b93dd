// What the kernels of signals are given.
//
// Calls name words of the host's memory, and values. In graphs that is not enough: a graph is run again and again, with the same
// parameters each time, so a word's value cannot be one of them. Each rank counts its
// runs of captured calls in GPU memory: the *pass*, the same on all ranks, since all run the same calls in the same order. Words hold
// pass << 24 | value, so they only grow.
#pragma once

#include <cstdint>

namespace epccl::device::kernels {

inline constexpr uint32_t max_signal_ranks = 126;  // of a node
inline constexpr uint32_t max_graph_posts = 32;
inline constexpr uint32_t max_graph_waits = 128;
inline constexpr int pass_shift = 24;
inline constexpr uint64_t pass_value_mask = (uint64_t{1} << pass_shift) - 1;

/// In host memory that the GPU writes: what the host sees of runs, and how it ends them.
struct ReplayReport {
  uint64_t
      given_up;  // not 0: nothing waits any more. Written by the host, and by the kernel that finds a mismatch
  uint64_t begun;  // passes
  uint64_t over;
  uint64_t step;     // pass << 24 | launches of it that have begun
  uint64_t call;     // of the pass that has begun
  uint64_t awaited;  // 1 + (rank << 16 | slot) of the first word that was waited for when `given_up` was seen
  uint64_t other;    // 1 + rank that has begun another call
  uint64_t their_call;
};

struct GraphPost {
  uint32_t slot = 0;
  uint32_t value = 0;
};
struct GraphWait {
  uint16_t rank = 0;  // local position
  uint16_t slot = 0;
  uint32_t value = 0;
};

/// Posts, then waits. One warp.
struct SignalParameters {
  uint64_t* pass = nullptr;  // of this rank, in GPU memory
  const uint64_t* words =
      nullptr;  // what others have posted for this rank: word of rank r and slot s at r * slots + s
  uint64_t* told[max_signal_ranks] = {};  // where others keep this rank's words: slot s at [s]; null: itself
  ReplayReport* report = nullptr;
  uint32_t ranks = 0;
  uint32_t slots = 0;
  uint32_t begins =
      0;  // 1: a pass begins: it is counted, and the first post's value is the call, which all ranks must have alike
  uint32_t ends = 0;  // 1: it ends
  uint32_t step = 0;
  uint32_t post_count = 0, wait_count = 0;
  GraphPost posts[max_graph_posts];
  GraphWait waits[max_graph_waits];
};

/// In host memory: the one call at a time of a graph that a thread of the host makes.
struct HostCallReport {
  uint64_t call;  // its number; written by the GPU, as the next
  uint64_t come;  // how many calls have come so far
  uint64_t over;  // how many of these the host has made
  uint64_t met;   // not 0: two graphs have come at once; the one that came second does not say so above
};

/// Says that a call has come, waits until the host has made it, or both. One lane. A call that comes before the host has made the one
/// before is of another graph: it says no more than that, and waits for the end.
struct HostCallParameters {
  uint64_t* count = nullptr;  // of this rank's calls, in GPU memory
  HostCallReport* report = nullptr;
  ReplayReport* replays = nullptr;  // `given_up` ends the wait
  uint64_t call = 0;
  uint32_t says = 0, waits = 0;
};

/// A word of the host's memory, which says what holds, and another in a GPU's memory that is raised to the same values and is sooner to
/// see there; null: there is none.
struct AwaitedWord {
  const uint64_t* word = nullptr;
  const uint64_t* near = nullptr;
  uint64_t at_least = 0;
};
struct RaisedWord {
  uint64_t* word = nullptr;
  uint64_t* near = nullptr;
  uint64_t value = 0;
};

inline constexpr uint32_t max_awaited_words = 32, max_raised_words = 4;

/// Waits for all of the former, then raises the latter in their order. One warp.
struct WordParameters {
  uint32_t awaited_count = 0, raised_count = 0;
  AwaitedWord awaited[max_awaited_words];
  RaisedWord raised[max_raised_words];
};

}  // namespace epccl::device::kernels
