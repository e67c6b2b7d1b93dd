// Who waits for long says so, long before it gives up (EPCCL_WAIT_WARNING).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

/// What all ranks say at WARN.
class Said {
 public:
  explicit Said(const char* name)
      : path_(testing::TempDir() + name + "." + std::to_string(getpid()) + ".log") {}
  ~Said() { std::filesystem::remove(path_); }

  std::vector<std::pair<std::string, std::string>> settings() const {
    return {{"EPCCL_DEBUG", "WARN"},
            {"EPCCL_DEBUG_FILE", path_},
            {"EPCCL_WAIT_WARNING", "0.3"},
            {"EPCCL_TIMEOUT", "60"}};
  }
  std::string text() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Until it has `words`; far less than the timeout.
  std::string await(const std::string& words) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (text().find(words) == std::string::npos && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return text();
  }

 private:
  const std::string path_;
};

TEST(LongWait, InACallIsToldOfTheRankThatIsLate) {
  const Said said("late_call");
  run_ranks({{2}, said.settings(), {}}, [&](const RankContext& context) {
    Comm comm(context);
    context.meet();
    if (context.rank == 1) {
      EXPECT_THAT(
          said.await("has waited"),
          AllOf(ContainsRegex("allreduce count 1 float32 sum \\(call 1\\) has waited [0-9]+ s for rank 1"),
                HasSubstr("it gives up after 60 s")));
    }
    const float in = 1;
    float out = 0;
    EXPECT_EQ(epcclAllReduce(&in, &out, 1, epcclFloat32, epcclSum, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    EXPECT_EQ(out, 2);
  });
}

// Ranks that make other calls wait for each other for the whole timeout, if nobody waits in one that the other has left behind.
TEST(LongWait, InCallsThatNeverMeetIsToldOfWhatTheOtherDoes) {
  const Said said("other_call");
  run_ranks({{2}, said.settings(), {}}, [&](const RankContext& context) {
    Comm comm(context);
    float value = 0;
    if (context.rank == 0) {
      // Each receives what the other would send after that.
      EXPECT_EQ(epcclRecv(&value, 1, epcclFloat32, 1, comm, nullptr), epcclRemoteError);
    } else {
      std::thread ends([&] {
        EXPECT_THAT(said.await("for rank 0"), HasSubstr("has waited"));
        const std::string last_seen = "rank 1 was last seen waiting";  // not yet where rank 1 is late
        EXPECT_THAT(said.await(last_seen), HasSubstr(last_seen));
        EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
        comm.forget();
      });
      EXPECT_EQ(epcclRecv(&value, 1, epcclFloat32, 0, comm, nullptr), epcclRemoteError);
      ends.join();
    }
  });
}

TEST(LongWait, InJoiningIsToldOfTheRankThatIsMissing) {
  const Said said("late_rank");
  run_ranks({{3}, said.settings(), {}}, [&](const RankContext& context) {
    if (context.rank == 2) {
      EXPECT_THAT(said.await("missing: 2"),
                  HasSubstr("2 of 3 ranks have joined; missing: 2; gives up after 60 s"));
    }
    Comm comm(context);
    EXPECT_THAT(said.text(), Not(HasSubstr("failed")));
  });
}

}  // namespace
}  // namespace epccl::tests
