// EPCCL_VARIANT and EPCCL_CARRIERS: collectives are made as they say, and give the same.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "rank_log.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

constexpr size_t count = 600;

struct Case {
  std::vector<int> ranks_per_node;
  std::string setting, value;
  std::string call, said;  // what the log has of it
};

void run_all(epcclComm_t comm, const RankContext& context) {
  const auto all = static_cast<size_t>(context.ranks);
  std::vector<int> in(count * all), out(count);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i) * (context.rank + 1);
  const int of_ranks = context.ranks * (context.ranks + 1) / 2, last = context.ranks - 1;
  const auto expect = [&](const char* what, size_t first, int factor) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) wrong += out[i] != static_cast<int>(first + i) * factor ? 1 : 0;
    EXPECT_EQ(wrong, 0U) << what << " on rank " << context.rank;
  };
  ASSERT_EQ(epcclAllReduce(in.data(), out.data(), count, epcclInt32, epcclSum, comm, nullptr), epcclSuccess);
  expect("allreduce", 0, of_ranks);
  ASSERT_EQ(epcclReduceScatter(in.data(), out.data(), count, epcclInt32, epcclSum, comm, nullptr),
            epcclSuccess);
  expect("reduce_scatter", count * static_cast<size_t>(context.rank), of_ranks);
  ASSERT_EQ(epcclReduce(in.data(), out.data(), count, epcclInt32, epcclSum, last, comm, nullptr),
            epcclSuccess);
  if (context.rank == last) expect("reduce", 0, of_ranks);
  ASSERT_EQ(epcclBroadcast(in.data(), out.data(), count, epcclInt32, last, comm, nullptr), epcclSuccess);
  expect("broadcast", 0, context.ranks);
}

TEST(Variants, AreThoseThatTheSettingsName) {
  const std::vector<int> node{4}, two{2, 2}, three{2, 1, 2};
  for (const Case& it :
       std::vector<Case>{{node, "EPCCL_VARIANT", "alone", "allreduce", "variant=alone"},
                         {node, "EPCCL_VARIANT", "plain", "allreduce", "variant=plain"},
                         {node, "EPCCL_CARRIERS", "3", "reduce", "carriers=3"},
                         {two, "EPCCL_VARIANT", "together", "reduce_scatter", "variant=together"},
                         {two, "EPCCL_CARRIERS", "2", "allreduce", "carriers=2"},
                         {three, "EPCCL_VARIANT", "tree", "allreduce", "variant=tree"},
                         {three, "EPCCL_VARIANT", "split", "allreduce", "variant=split"},
                         {three, "EPCCL_VARIANT", "tree", "broadcast", "variant=tree"},
                         {three, "EPCCL_VARIANT", "relay", "reduce", "variant=relay"},
                         {three, "EPCCL_VARIANT", "relay", "reduce_scatter", "algo="}}) {
    SCOPED_TRACE(fmt::format("{}={} {}", it.setting, it.value, it.call));
    run_ranks(
        {it.ranks_per_node,
         {{it.setting, it.value}, {"EPCCL_DEBUG", "INFO"}, {"EPCCL_DEBUG_SUBSYS", "COLL"}, Log::setting()},
         {}},
        [&it](const RankContext& context) {
          const Log log;
          {
            Comm comm(context);
            run_all(comm, context);
          }
          const std::string text = log.text();
          const size_t line = text.find(" " + it.call + " count");
          ASSERT_NE(line, std::string::npos) << text;
          EXPECT_NE(text.substr(line, text.find('\n', line) - line).find(it.said), std::string::npos) << text;
        });
  }
}

TEST(Variants, ThatRanksDoNotAgreeAboutAreToldWhenTheyMeet) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    if (context.rank == 1) setenv("EPCCL_VARIANT", "tree", 1);
    epcclComm_t comm = nullptr;
    EXPECT_NE(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    const std::string told = epcclGetLastError(nullptr);
    EXPECT_NE(told.find("EPCCL_VARIANT is auto on rank 0, tree on rank 1"), std::string::npos) << told;
  });
}

}  // namespace
}  // namespace epccl::tests
