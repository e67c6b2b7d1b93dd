// Measurements by ranks in processes of their own, which leave their numbers in memory that all share.
#pragma once

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <new>
#include <type_traits>

#include "base/clock.hpp"
#include "ranks.hpp"

namespace epccl::device::test {

/// In which a measurement has to end: one that hangs is not to take the others' time.
inline constexpr double most_seconds = 60;
/// After so many that hung no more are tried of such ranks.
inline constexpr int most_hangs = 2;

inline constexpr const char* not_over = "it was not over";

/// Measurements of this process that hung.
inline int& hangs_of(As as) {
  static int hangs[2] = {};
  return hangs[as == As::threads ? 0 : 1];
}

/// How `child` ended, once it has or its time is over, when it is killed (its ranks die with it: ranks.hpp); empty: well.
inline std::string why_not_over(pid_t child, double seconds) {
  int status = 0;
  const double until = now_seconds() + seconds;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (now_seconds() >= until) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return fmt::format("{} after {:.0f} s", not_over, seconds);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (WIFSIGNALED(status)) return fmt::format("it died of signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "it failed";
}

/// Runs the ranks in a process that this one does not share a GPU with, so that ranks can be processes; what they left on the board,
/// which begins with zeros. Throws what went wrong.
template <class Board>
Board measured(As as, int ranks, const std::function<void(Rank&, Board&)>& work,
               double seconds = most_seconds) {
  static_assert(std::is_trivially_copyable_v<Board>);
  int& hangs = hangs_of(as);
  if (hangs >= most_hangs)
    throw std::runtime_error(
        fmt::format("not tried: {} before it with ranks as {} hung", hangs, text_of(as)));
  struct Page {
    Board board;
    char why[256];
  };
  void* memory = mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory to share");
  auto* page = new (memory) Page{};
  std::fflush(nullptr);  // or the child prints it again
  const pid_t parent = getpid(), child = fork();
  if (child < 0) throw std::runtime_error("no process to measure in");
  if (child == 0) {
    end_with_parent(parent);
    const std::string why = failure_of_ranks(as, ranks, [&](Rank& rank) { work(rank, page->board); });
    std::snprintf(page->why, sizeof page->why, "%s", why.c_str());
    std::fflush(nullptr);
    _exit(why.empty() ? 0 : 1);
  }
  const std::string how = why_not_over(child, seconds);
  const Page result = *page;
  munmap(memory, sizeof(Page));
  if (result.why[0] != '\0') throw std::runtime_error(result.why);
  if (how.starts_with(not_over)) ++hangs;
  if (!how.empty()) throw std::runtime_error(how);
  return result.board;
}

inline double median_of(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  return seconds[seconds.size() / 2];
}

}  // namespace epccl::device::test
