// Ranks that do not agree get an error that names who and what, and nobody hangs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ranks.hpp"

namespace epccl::tests {
namespace {

// And not that somebody waited until the timeout, which names the others' calls, too.
void expect_words(epcclComm_t comm, std::initializer_list<const char*> words) {
  const char* const said = epcclGetLastError(comm);
  for (const char* word : words) EXPECT_NE(std::strstr(said, word), nullptr) << said << "\nlacks: " << word;
  EXPECT_EQ(std::strstr(said, "timeout"), nullptr) << said;
}

class Disagreement : public testing::TestWithParam<std::vector<int>> {};

TEST_P(Disagreement, OnTheCount) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<float> in(4096), out(4096);
    const size_t count = context.rank == 1 ? 8 : 4;
    EXPECT_NE(epcclAlltoall(in.data(), out.data(), count, epcclFloat32, comm, nullptr), epcclSuccess);
    expect_words(comm, {"rank 1", "alltoall count 8 float32", "alltoall count 4 float32"});
  });
}

TEST_P(Disagreement, OnTheDatatype) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<double> in(64), out(64);
    const auto type = context.rank == 0 ? epcclFloat32 : epcclFloat64;
    EXPECT_NE(epcclAlltoall(in.data(), out.data(), 4, type, comm, nullptr), epcclSuccess);
    expect_words(comm, {"rank 0", "alltoall count 4 float32", "alltoall count 4 float64"});
  });
}

TEST_P(Disagreement, OnTheCall) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    const auto ranks = static_cast<size_t>(context.ranks);
    std::vector<float> in(64), out(64);
    std::vector<size_t> counts(ranks, 1), displs(ranks);
    for (size_t i = 0; i < ranks; ++i) displs[i] = i;
    if (context.rank == 0)
      EXPECT_NE(epcclAlltoallv(in.data(), counts.data(), displs.data(), out.data(), counts.data(),
                               displs.data(), epcclFloat32, comm, nullptr),
                epcclSuccess);
    else
      EXPECT_NE(epcclAlltoall(in.data(), out.data(), 1, epcclFloat32, comm, nullptr), epcclSuccess);
    expect_words(comm, {"rank 0", "alltoallv", "alltoall count 1 float32"});
  });
}

// Messages of as many bytes come and go in all of these.
TEST_P(Disagreement, OnWhatIsAddedUpAndHow) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<float> in(64, 1), out(64);
    const auto type = context.rank == 0 ? epcclInt32 : epcclFloat32;
    EXPECT_NE(epcclAllReduce(in.data(), out.data(), 4, type, epcclSum, comm, nullptr), epcclSuccess);
    expect_words(comm, {"rank 0", "allreduce count 4 int32 sum", "allreduce count 4 float32 sum"});
  });
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<float> in(64, 1), out(64);
    const auto operation = context.rank == 0 ? epcclMax : epcclSum;
    EXPECT_NE(epcclAllReduce(in.data(), out.data(), 4, epcclFloat32, operation, comm, nullptr), epcclSuccess);
    expect_words(comm, {"rank 0", "allreduce count 4 float32 max", "allreduce count 4 float32 sum"});
  });
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    std::vector<float> in(64, 1), out(64);
    const epcclResult_t result =
        context.rank == 0 ? epcclAllGather(in.data(), out.data(), 4, epcclFloat32, comm, nullptr)
                          : epcclAllReduce(in.data(), out.data(), 4, epcclFloat32, epcclSum, comm, nullptr);
    EXPECT_NE(result, epcclSuccess);
    expect_words(comm, {"rank 0", "allgather count 4 float32", "allreduce count 4 float32 sum"});
  });
}

TEST_P(Disagreement, OnTheCountsOfAlltoallv) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    const auto ranks = static_cast<size_t>(context.ranks);
    std::vector<float> in(64), out(64);
    std::vector<size_t> sends(ranks, 2), receives(ranks, 2), displs(ranks);
    for (size_t i = 0; i < ranks; ++i) displs[i] = 3 * i;
    if (context.rank == 1) receives[0] = 3;
    EXPECT_NE(epcclAlltoallv(in.data(), sends.data(), displs.data(), out.data(), receives.data(),
                             displs.data(), epcclFloat32, comm, nullptr),
              epcclSuccess);
    expect_words(comm, {"rank 0 sends 8 bytes to rank 1, which expects 12"});
  });
}

// It has nothing to send, and no buffer for it.
TEST_P(Disagreement, OfARankWithItselfOnTheCountsOfAlltoallv) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    const auto ranks = static_cast<size_t>(context.ranks);
    std::vector<float> out(ranks);
    std::vector<size_t> sends(ranks, 0), receives(ranks, 0), displs(ranks, 0);
    if (context.rank == 1) receives[1] = 1;
    const epcclResult_t result = epcclAlltoallv(nullptr, sends.data(), displs.data(), out.data(),
                                                receives.data(), displs.data(), epcclFloat32, comm, nullptr);
    if (context.rank != 1) return;    // others may be through with theirs
    EXPECT_NE(result, epcclSuccess);  // on one node all find it out, and who does so first tells the others
    expect_words(comm, {"rank 1 sends 0 bytes to rank 1, which expects 4"});
  });
}

// Small blocks go another way than large ones: sender and receiver need not agree about that either.
TEST(DisagreementOnOneNode, OnTheCountsOfLargeBlocks) {
  struct Counts {
    size_t sent, expected, others;  // floats, of rank 0's block for rank 1, and of all other blocks
  };
  for (const auto& [sent, expected, others] :
       {Counts{5000, 5001, 3000}, Counts{5000, 2, 3}, Counts{2, 5000, 3}, Counts{0, 5000, 3000}})
    run_ranks({{3}, {{"EPCCL_TIMEOUT", "10"}}, {}}, [&](const RankContext& context) {
      Comm comm(context);
      const std::vector<float> in(15000, 1);
      std::vector<float> out(15003, -1);
      std::vector<size_t> sends(3, others), receives(3, others);
      const std::vector<size_t> in_displs{0, 5000, 10000}, out_displs{0, 5001, 10002};
      if (context.rank == 0) sends[1] = sent;
      if (context.rank == 1) receives[0] = expected;
      EXPECT_NE(epcclAlltoallv(in.data(), sends.data(), in_displs.data(), out.data(), receives.data(),
                               out_displs.data(), epcclFloat32, comm, nullptr),
                epcclSuccess);
      const std::string wrong =
          fmt::format("rank 0 sends {} bytes to rank 1, which expects {}", 4 * sent, 4 * expected);
      expect_words(comm, {wrong.c_str()});
      if (context.rank == 1 && expected == 5000) {
        EXPECT_EQ(out[0], -1) << "what was not sent is not read";
      }
    });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Disagreement,
                         testing::Values(std::vector{3}, std::vector{1, 1}, std::vector{2, 2}));

class DisagreementOnTheRoot : public testing::TestWithParam<std::vector<int>> {};
// Each of the two has a rank of its node to whom it comes out.
INSTANTIATE_TEST_SUITE_P(Shapes, DisagreementOnTheRoot, testing::Values(std::vector{3}, std::vector{2, 2}));

// A root waits for nobody, and who reads from the right one does not look at the other: all may be through before it comes out.
TEST_P(DisagreementOnTheRoot, OfASmallBroadcastComesOutInTheNextCall) {
  run_ranks({GetParam(), {{"EPCCL_TIMEOUT", "10"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    float part[4] = {};
    std::vector<float> all(4 * static_cast<size_t>(context.ranks));
    const int root = context.rank == 1 ? 1 : 0;
    epcclResult_t result = epcclBroadcast(part, part, 4, epcclFloat32, root, comm, nullptr);
    if (result == epcclSuccess) result = epcclAllGather(part, all.data(), 4, epcclFloat32, comm, nullptr);
    EXPECT_NE(result, epcclSuccess);
    expect_words(comm, {"rank 1", "broadcast count 4 float32 root 0", "broadcast count 4 float32 root 1"});
  });
}

// With a rank a node only what they send each other can tell. A message of the broadcast stays behind, and is no other call's.
TEST(DisagreementBetweenNodes, OfACallThatAllRanksCouldEndComesOutInTheNextOne) {
  enum class Odd : uint8_t { count_zero, own_root, scatter_of_nothing };
  for (const Odd odd : {Odd::count_zero, Odd::own_root, Odd::scatter_of_nothing})
    for (const std::vector<int>& nodes : {std::vector<int>{1, 1, 1}, {2, 1}})
      run_ranks({nodes, {{"EPCCL_TIMEOUT", "20"}}, {}}, [&](const RankContext& context) {
        Comm comm(context);
        const bool is_odd = context.rank == 2;
        std::array<float, 12> part{};
        const size_t count = is_odd && odd != Odd::own_root ? 0 : 4;
        const int root = is_odd && odd == Odd::own_root ? 2 : 0;
        epcclResult_t result =
            odd == Odd::scatter_of_nothing
                ? epcclScatter(part.data(), part.data() + static_cast<ptrdiff_t>(4 * context.rank), count,
                               epcclFloat32, root, comm, nullptr)
                : epcclBroadcast(part.data(), part.data(), count, epcclFloat32, root, comm, nullptr);
        if (result == epcclSuccess)
          result = epcclBroadcast(part.data(), part.data(), 4, epcclFloat32, 0, comm, nullptr);
        // The root waits for nobody before this one.
        float sum = 1;
        if (result == epcclSuccess)
          result = epcclAllReduce(&sum, &sum, 1, epcclFloat32, epcclSum, comm, nullptr);
        EXPECT_NE(result, epcclSuccess);
        expect_words(comm,
                     {"of call 1, which this rank did not receive there: the two made different calls"});
      });
}

TEST(DisagreementOnSettings, IsFoundWhenJoining) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    if (context.rank == 1) setenv("EPCCL_CHUNK_SIZE", "64K", 1);
    epcclComm_t comm = nullptr;
    EXPECT_NE(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    expect_words(nullptr, {"EPCCL_CHUNK_SIZE is auto on rank 0, 65536 on rank 1"});
    const std::string told = epcclGetLastError(nullptr);
    EXPECT_EQ(told.find("SCRATCH_SIZE"), std::string::npos) << "does not differ: " << told;
  });
}

// Rails that are taken over by one end only, or messages that one end alone sends unasked, would end in a wait.
TEST(DisagreementOnSettings, OfRdmaIsFoundWhenJoining) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    if (context.rank == 1) setenv("EPCCL_RAIL_FAILOVER", "1", 1), setenv("EPCCL_VERBS_EAGER_LIMIT", "4K", 1);
    epcclComm_t comm = nullptr;
    EXPECT_NE(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    expect_words(nullptr, {"EPCCL_VERBS_EAGER_LIMIT is 8192 on rank 0, 4096 on rank 1; "
                           "EPCCL_RAIL_FAILOVER is 0 on rank 0, 1 on rank 1"});
  });
}

// Who asks for chunks that cores have by default cuts the calls of copy engines otherwise than the others do.
TEST(DisagreementOnSettings, IsNamedAsItIsSetWhereAutoIsAnother) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    if (context.rank == 1) setenv("EPCCL_CHUNK_SIZE", "128K", 1);
    epcclComm_t comm = nullptr;
    EXPECT_NE(epcclCommInitRank(&comm, 2, context.id, context.rank), epcclSuccess);
    expect_words(nullptr, {": EPCCL_CHUNK_SIZE is auto on rank 0, 131072 on rank 1"});
    EXPECT_EQ(std::strchr(epcclGetLastError(nullptr), ';'), nullptr) << "no other setting is named";
  });
}

TEST(DisagreementOnSettings, IsNoneWhereARankSetsWhatTheOthersHaveByDefault) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    if (context.rank == 1)
      for (const auto& [name, value] :
           {std::pair("EPCCL_CHUNK_SIZE", "auto"), std::pair("EPCCL_SCRATCH_SIZE", "8192K"),
            std::pair("EPCCL_CMA", "1"), std::pair("EPCCL_RAIL_FAILOVER", "no"),
            std::pair("EPCCL_CARRIERS", "0"), std::pair("EPCCL_ALGO", "auto")})
        setenv(name, value, 1);
    Comm comm(context);
    std::array<int, 2> in{context.rank, context.rank}, out{-1, -1};
    EXPECT_EQ(epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, nullptr), epcclSuccess);
    EXPECT_EQ(out, (std::array{0, 1}));
  });
}

}  // namespace
}  // namespace epccl::tests
