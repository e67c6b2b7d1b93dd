#include "measured.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

std::string failure_of(As as, const std::function<void(Rank&, int&)>& work, double seconds = most_seconds) {
  try {
    measured<int>(as, 2, work, seconds);
    return "";
  } catch (const std::exception& failure) {
    return failure.what();
  }
}

TEST(Measurements, SayWhatWentWrongInARank) {
  for (const As as : {As::threads, As::processes})
    EXPECT_EQ(failure_of(as,
                         [](Rank& rank, int&) {
                           if (rank.number() == 1) throw std::runtime_error("no memory");
                         }),
              "rank 1: no memory");
  EXPECT_THAT(failure_of(As::threads, [](Rank&, int&) { raise(SIGKILL); }), HasSubstr("signal 9"));
}

TEST(Measurements, ThatHangAreEndedWithTheirRanks) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const auto hangs = [](Rank&, int&) { pause(); };
  EXPECT_THAT(failure_of(As::processes, hangs, 0.1), HasSubstr("not over"));
  close(ends[1]);
  // The last of those that have it open as well has ended.
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  close(ends[0]);
}

TEST(Measurements, AreNotTriedAfterTwoThatHungWithSuchRanks) {
  const auto hangs = [](Rank&, int&) { pause(); };
  hangs_of(As::threads) = hangs_of(As::processes) = 0;
  for (int i = 0; i < most_hangs; ++i)
    EXPECT_THAT(failure_of(As::threads, hangs, 0.1), HasSubstr("not over"));
  EXPECT_THAT(failure_of(As::threads, [](Rank&, int&) {}),
              HasSubstr("not tried: 2 before it with ranks as threads hung"));
  EXPECT_EQ(failure_of(As::processes, [](Rank&, int&) {}), "");
}

}  // namespace
}  // namespace epccl::device::test
