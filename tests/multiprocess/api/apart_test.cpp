// Ranks of a node that may not open each other's memory through /proc hand it over, and calls are what they are elsewhere.
#include "apart.hpp"

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "exchange.hpp"
#include "rank_log.hpp"
#include "ranks.hpp"
#include "refused_calls.hpp"

namespace epccl::tests {
namespace {

void expect_says(const Log& log, const std::string& line) {
  const std::string text = log.text();
  EXPECT_NE(text.find(line), std::string::npos) << text;
}

/// Of a process that has not used the library yet.
void start_logging() {
  setenv("EPCCL_DEBUG", "INFO", 1);
  setenv(Log::setting().first.c_str(), Log::setting().second.c_str(), 1);
}

/// Alltoalls of memory that is registered, each of windows of its own, which the host's copy engines map where those are used.
void exchange_registered(const RankContext& context, epcclComm_t comm, size_t count) {
  const size_t bytes = static_cast<size_t>(context.ranks) * count;
  for (int round = 0; round < 3; ++round) {
    void *in = nullptr, *out = nullptr;
    ASSERT_EQ(epcclMemAlloc(&in, bytes), epcclSuccess);
    ASSERT_EQ(epcclMemAlloc(&out, bytes), epcclSuccess);
    std::memset(in, 10 * round + context.rank + 1, bytes);
    ASSERT_EQ(epcclAlltoall(in, out, count, epcclUint8, comm, nullptr), epcclSuccess)
        << epcclGetLastError(comm);
    for (size_t at = 0; at < bytes; ++at)
      ASSERT_EQ(static_cast<uint8_t*>(out)[at], 10 * round + static_cast<int>(at / count) + 1);
    ASSERT_EQ(epcclMemFree(in), epcclSuccess);
    ASSERT_EQ(epcclMemFree(out), epcclSuccess);
  }
}

void send_around(const RankContext& context, epcclComm_t comm, size_t count) {
  std::vector<int> sent(count, context.rank), got(count, -1);
  const int next = (context.rank + 1) % context.ranks,
            last = (context.rank + context.ranks - 1) % context.ranks;
  ASSERT_EQ(epcclGroupStart(), epcclSuccess);
  ASSERT_EQ(epcclSend(sent.data(), count, epcclInt32, next, comm, nullptr), epcclSuccess);
  ASSERT_EQ(epcclRecv(got.data(), count, epcclInt32, last, comm, nullptr), epcclSuccess);
  ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
  EXPECT_EQ(got, std::vector<int>(count, last));
}

void exchange_all(const RankContext& context, epcclComm_t comm) {
  exchange_registered(context, comm, 100'000);
  Exchange exchange(context.rank, context.ranks, 3'000'000);
  ASSERT_EQ(exchange.start(comm), epcclSuccess) << epcclGetLastError(comm);
  EXPECT_EQ(exchange.wrong(), 0U);
  std::vector<float> ones(200'000, 1), sum(ones.size());
  ASSERT_EQ(epcclAllReduce(ones.data(), sum.data(), sum.size(), epcclFloat32, epcclSum, comm, nullptr),
            epcclSuccess)
      << epcclGetLastError(comm);
  EXPECT_EQ(sum, std::vector<float>(sum.size(), static_cast<float>(context.ranks)));
  send_around(context, comm, 200'000);
}

using Shape = std::vector<int>;

class RanksApart : public testing::TestWithParam<std::tuple<Apart, Shape>> {
 protected:
  static void exchange_apart(const std::vector<std::pair<std::string, std::string>>& environment) {
    const auto& [how, shape] = GetParam();
    if (!can_be_set_apart(how)) GTEST_SKIP() << "ranks cannot be kept from each other here: " << text_of(how);
    run_ranks({shape, environment, {}}, [how = how](const RankContext& context) {
      ASSERT_TRUE(set_apart(how, context.rank)) << std::strerror(errno);
      // Rank 0 may have become another user than the one whose file it would be.
      std::optional<Log> log;
      if (context.rank != 0) {
        start_logging();
        log.emplace();
      }
      Comm comm(context);
      exchange_all(context, comm);
      if (log) expect_says(*log, "may not open the memory of its node's other ranks");
      epcclComm_t all = nullptr;
      ASSERT_EQ(epcclCommSplit(comm, 0, 0, &all, nullptr), epcclSuccess) << epcclGetLastError(comm);
      exchange_all(context, all);
      EXPECT_EQ(epcclCommDestroy(all), epcclSuccess);
    });
  }
};

// Where they may not read each other's memory either, cores stage all that they copy: the node's segment is all that is handed over.
TEST_P(RanksApart, HandTheirSegmentOver) {
  exchange_apart({});
}

TEST_P(RanksApart, HandTheirWindowsOver) {
  exchange_apart({{"EPCCL_COPY_ENGINE", "always"}});
}

INSTANTIATE_TEST_SUITE_P(Ways, RanksApart,
                         testing::Combine(testing::Values(Apart::user_namespaces, Apart::capabilities,
                                                          Apart::not_dumpable),
                                          testing::Values(Shape{3}, Shape{2, 2})),
                         [](const auto& info) {
                           return text_of(std::get<0>(info.param)) +
                                  std::to_string(std::get<1>(info.param).size());
                         });

// Of one that may read its peers' memory and not write there, or the other way round, nothing is used.
TEST(UseOfMemory, MayBeRefusedOneWayOnly) {
  for (const uint32_t call : {uint32_t{SYS_process_vm_writev}, uint32_t{SYS_process_vm_readv}})
    run_ranks({{2}, {{"EPCCL_DEBUG", "INFO"}, Log::setting()}, {}}, [call](const RankContext& context) {
      const Log log;
      if (context.rank == 1) refuse_calls({call});
      Comm comm(context);
      exchange_all(context, comm);
      expect_says(log,
                  "rank 1 may not use its peers' memory (process_vm_readv or process_vm_writev is refused)");
    });
}

}  // namespace
}  // namespace epccl::tests
