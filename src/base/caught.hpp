// Exceptions (memory that is not to be had, a thread that does not start) as the errors they are to who has to clean up. Memory may stay short:
// none of these throws.
#pragma once

#include <exception>
#include <type_traits>

#include "base/status.hpp"

namespace epccl {

/// The Status that `describe` makes; where there is no memory for its text, a system_error without one.
template <typename Describe>
Status with_or_without_text(Describe describe) noexcept {
  try {
    return describe();
  } catch (const std::exception&) {
    return {Code::system_error, ""};
  }
}

/// What `work` returns, a Status or a Result; what it throws, as an error.
template <typename Work>
std::invoke_result_t<Work&> caught(Work work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    return with_or_without_text([&] { return Status(Code::system_error, thrown.what()); });
  }
}

/// A step of an end that goes on whatever it throws.
template <typename Step>
void go_through(Step step) noexcept {
  try {
    step();
  } catch (const std::exception&) {
    // It has done what it had memory for.
  }
}

}  // namespace epccl
