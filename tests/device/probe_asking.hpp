// A question to the driver, asked in a process of its own, with limits of time: nothing that a driver does keeps the others from being asked.
//
//   a process a question     makes its lab; holds a stream; makes the call, while another thread makes cheap ones
//   its watchdog             lets the stream go with a plain store when the call has returned, or after `longest_hold`; ends the process
//                            where that does not help. It never calls the driver
//   the asking process       ends the other one where even that does not happen, and goes on
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "probe_lab.hpp"

namespace epccl::device::probe {

/// Seconds for which a stream is held at most, and after which a call that waits for it counts as one that never returns.
inline constexpr double longest_hold = 1, patience_after = 3;
/// What counts as having waited for the held stream.
inline constexpr double is_a_wait = longest_hold / 2;

struct Question {
  std::string call;                        // as people name it
  std::function<void(Lab& lab)> before{};  // while nothing is held
  std::function<void(Lab& lab)> work{};    // while lab.held is
  std::vector<std::pair<const char*, const char*>> environment{};
  bool of_a_peer = false;     // another process lends memory: Lab::lent
  bool with_kernels = false;  // asked where there are kernels only
};

struct Answer {
  enum class State : int {
    asked,
    working,   // the call has been begun,
    returned,  // and has returned
    failed,    // text says why
    left_out,
  };
  State state = State::asked;
  bool was_ended = false;  // the call, or another thread's, did not return after the stream went on either
  double seconds = 0;      // until the call returned
  // Of a thread that goes on copying on a stream of its own, of the library's priority: its longest call, and what its work took at most.
  double others_call = 0, others_work = 0;
  std::string others_name, text;
};
Answer ask(const Question& question);

/// `held` streams are held, each with a copy behind; how many of `others` other streams stand still as well, by what they do.
enum class Priority { of_held, of_library, highest };
struct ChannelQuestion {
  int held = 1;
  Priority others = Priority::of_held;
  int connections = 0;      // CUDA_DEVICE_MAX_CONNECTIONS; 0: not set
  bool holds_null = false;  // the NULL stream is the one that is held
};
inline constexpr int others_each = 16;
inline constexpr std::array kinds_of_work{"kernels", "copies inside the GPU", "copies to the host", "posts"};
struct ChannelAnswer {
  std::array<int, kinds_of_work.size()> stuck{};
  std::string text;  // what went wrong
};
ChannelAnswer ask(const ChannelQuestion& question);

}  // namespace epccl::device::probe
