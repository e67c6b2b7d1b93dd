// Programs that close their standard descriptors, as daemons do: what the library opens must not become one of them, since what anybody
// prints would go into it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

/// For the length of a scope there are none.
class WithoutStandardDescriptors {
 public:
  WithoutStandardDescriptors() {
    for (int fd = 0; fd < 3; ++fd) {
      kept_[static_cast<size_t>(fd)] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
      close(fd);
    }
  }
  WithoutStandardDescriptors(const WithoutStandardDescriptors&) = delete;
  WithoutStandardDescriptors& operator=(const WithoutStandardDescriptors&) = delete;
  ~WithoutStandardDescriptors() {
    for (int fd = 0; fd < 3; ++fd)
      if (const int kept = kept_[static_cast<size_t>(fd)]; kept >= 0) dup2(kept, fd);
  }
  /// How many of the numbers somebody has.
  static int taken() {
    int count = 0;
    for (int fd = 0; fd < 3; ++fd) count += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return count;
  }

 private:
  std::array<int, 3> kept_{};
};

bool sums(epcclComm_t comm, int rank, int ranks, size_t count) {
  std::vector<int64_t> mine(count), sum(count), all(count);
  std::iota(mine.begin(), mine.end(), rank);
  for (size_t i = 0; i < count; ++i) all[i] = static_cast<int64_t>(i) * ranks + ranks * (ranks - 1) / 2;
  return epcclAllReduce(mine.data(), sum.data(), count, epcclInt64, epcclSum, comm, nullptr) ==
             epcclSuccess &&
         sum == all;
}

enum class Closed : uint8_t { before_the_communicator, after_it };
using Case = std::tuple<std::vector<int>, Closed>;
class ClosedDescriptors : public testing::TestWithParam<Case> {};

TEST_P(ClosedDescriptors, AreTakenByNothingOfTheLibrarys) {
  const auto& [nodes, when] = GetParam();
  // The log goes to standard error, if there is one.
  run_ranks({nodes, {{"EPCCL_DEBUG", "TRACE"}, {"EPCCL_NET", "tcp"}}, {}},
            [when = when](const RankContext& context) {
              int taken = 0;
              bool right = true;
              {
                std::optional<WithoutStandardDescriptors> closed;
                if (when == Closed::before_the_communicator) closed.emplace();
                Comm comm(context);
                if (when == Closed::after_it) closed.emplace();
                for (const size_t count : {size_t{1}, size_t{1000}, size_t{1} << 18})
                  right = right && sums(comm, context.rank, context.ranks, count);
                void* memory = nullptr;
                right = right && epcclMemAlloc(&memory, 1 << 16) == epcclSuccess &&
                        sums(comm, context.rank, context.ranks, 7);
                taken = WithoutStandardDescriptors::taken();
                right = right && epcclMemFree(memory) == epcclSuccess;
              }
              EXPECT_TRUE(right) << epcclGetLastError(nullptr);
              EXPECT_EQ(taken, 0);
            });
}

INSTANTIATE_TEST_SUITE_P(Shapes, ClosedDescriptors,
                         testing::Combine(testing::Values(std::vector{2}, std::vector{1, 1, 1}),
                                          testing::Values(Closed::before_the_communicator,
                                                          Closed::after_it)));

}  // namespace
}  // namespace epccl::tests
