// System calls that a signal's handler interrupts, made again: those that have a time limit (SO_RCVTIMEO, poll) the system does not restart,
// not even where the handler was set with SA_RESTART, as a profiler's timer has it.
#pragma once

#include <cerrno>

namespace epccl {

template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace epccl
