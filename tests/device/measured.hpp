// Measurements by ranks in processes of their own, which leave their numbers in memory that all share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "ranks.hpp"

namespace epccl::device::test {

/// Runs the ranks in a process that this one does not share a GPU with, so that ranks can be processes; what they left on the board,
/// which begins with zeros.
template <class Board>
Board measured(As as, int ranks, const std::function<void(Rank&, Board&)>& work) {
  static_assert(std::is_trivially_copyable_v<Board>);
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory to share");
  auto* board = new (memory) Board{};
  std::fflush(nullptr);  // or the child prints it again
  const pid_t child = fork();
  if (child == 0) {
    run_ranks(as, ranks, [&](Rank& rank) { work(rank, *board); });
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  const Board result = *board;
  munmap(memory, sizeof(Board));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error("a measurement failed: see above");
  return result;
}

inline double median_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace epccl::device::test
