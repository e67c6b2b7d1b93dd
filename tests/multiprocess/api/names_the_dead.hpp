// What a rank is told of one that has died.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace epccl::tests {

/// Who has died, and not that somebody waited until the timeout.
inline auto names_the_dead(int rank) {
  return ::testing::AllOf(::testing::HasSubstr(fmt::format("rank {}", rank)),
                          ::testing::Not(::testing::HasSubstr("timeout")));
}

}  // namespace epccl::tests
