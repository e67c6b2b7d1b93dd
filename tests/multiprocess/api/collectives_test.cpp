// Every collective beside alltoall, through the C API: any count, datatype and operation, every root, in place and not.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "base/unique_fd.hpp"

#include "ranks.hpp"
#include "refused_calls.hpp"

namespace epccl::tests {
namespace {

/// Memory of a rank: of epcclMemAlloc, which peers map, or plain.
class Memory {
 public:
  Memory(size_t bytes, bool registered) : registered_(registered), plain_(registered ? 0 : bytes) {
    data_ = plain_.data();
    if (!registered) return;
    const epcclResult_t result = epcclMemAlloc(reinterpret_cast<void**>(&data_), bytes);
    EXPECT_EQ(result, epcclSuccess);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
    if (registered_) epcclMemFree(data_);
  }
  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }

 private:
  bool registered_;
  std::vector<uint8_t> plain_;
  uint8_t* data_ = nullptr;
};

// Small whole numbers: their sums and products are exact, in whatever order.
int64_t value(int rank, size_t i, int iteration) {
  return static_cast<int64_t>((static_cast<size_t>(rank) * 7 + i * 3 + static_cast<size_t>(iteration)) % 11) -
         4;
}

int64_t reduced(int ranks, size_t i, int iteration, epcclRedOp_t op) {
  int64_t result = value(0, i, iteration);
  for (int rank = 1; rank < ranks; ++rank) {
    const int64_t next = value(rank, i, iteration);
    if (op == epcclSum || op == epcclAvg) result += next;
    if (op == epcclMax) result = std::max(result, next);
    if (op == epcclMin) result = std::min(result, next);
  }
  return op == epcclAvg ? result / ranks : result;
}

enum class Kind { allreduce, reduce, reduce_scatter, allgather, broadcast, gather, scatter };
constexpr std::array all_kinds{Kind::allreduce, Kind::reduce, Kind::reduce_scatter, Kind::allgather,
                               Kind::broadcast, Kind::gather, Kind::scatter};

/// One call and all that it depends on.
template <typename T>
struct Trial {
  Kind kind;
  size_t count;
  epcclDataType_t datatype;
  epcclRedOp_t op = epcclSum;
  int root = 0;
  bool in_place = false;
  bool registered = false;
  int iteration = 0;

  std::string text() const {
    return fmt::format("kind {} count {} datatype {} op {} root {}{}{}", static_cast<int>(kind), count,
                       static_cast<int>(datatype), static_cast<int>(op), root, in_place ? " in place" : "",
                       registered ? " registered" : "");
  }

  size_t inputs(int rank, int ranks) const {
    if ((kind == Kind::broadcast || kind == Kind::scatter) && rank != root) return 0;
    return kind == Kind::reduce_scatter || kind == Kind::scatter ? count * static_cast<size_t>(ranks) : count;
  }
  size_t outputs(int rank, int ranks) const {
    if ((kind == Kind::reduce || kind == Kind::gather) && rank != root) return 0;
    return kind == Kind::allgather || kind == Kind::gather ? count * static_cast<size_t>(ranks) : count;
  }

  T expected(int rank, int ranks, size_t i) const {
    const auto source = static_cast<int>(count == 0 ? 0 : i / count);
    switch (kind) {
      case Kind::allreduce:
      case Kind::reduce:
        return static_cast<T>(reduced(ranks, i, iteration, op));
      case Kind::reduce_scatter:
        return static_cast<T>(reduced(ranks, static_cast<size_t>(rank) * count + i, iteration, op));
      case Kind::allgather:
      case Kind::gather:
        return static_cast<T>(value(source, i % count, iteration));
      case Kind::broadcast:
        return static_cast<T>(value(root, i, iteration));
      case Kind::scatter:
        return static_cast<T>(value(root, static_cast<size_t>(rank) * count + i, iteration));
    }
    return {};
  }

  epcclResult_t call(const T* in, T* out, epcclComm_t comm) const {
    switch (kind) {
      case Kind::allreduce:
        return epcclAllReduce(in, out, count, datatype, op, comm, nullptr);
      case Kind::reduce:
        return epcclReduce(in, out, count, datatype, op, root, comm, nullptr);
      case Kind::reduce_scatter:
        return epcclReduceScatter(in, out, count, datatype, op, comm, nullptr);
      case Kind::allgather:
        return epcclAllGather(in, out, count, datatype, comm, nullptr);
      case Kind::broadcast:
        return epcclBroadcast(in, out, count, datatype, root, comm, nullptr);
      case Kind::gather:
        return epcclGather(in, out, count, datatype, root, comm, nullptr);
      case Kind::scatter:
        return epcclScatter(in, out, count, datatype, root, comm, nullptr);
    }
    return epcclInternalError;
  }

  void run(epcclComm_t comm, const RankContext& context) const {
    const int rank = context.rank, ranks = context.ranks;
    const size_t in_count = inputs(rank, ranks), out_count = outputs(rank, ranks);
    Memory memory((in_count + out_count + 1) * sizeof(T), registered);
    T* in = memory.as<T>();
    T* out = in + in_count;
    if (in_place && in_count > 0 && out_count > 0) {
      const size_t own = static_cast<size_t>(rank) * count;
      out = in;
      if (in_count < out_count) in = out + own;
      if (in_count > out_count) out = in + own;
    } else {
      std::memset(out, 0x55, out_count * sizeof(T));
    }
    for (size_t i = 0; i < in_count; ++i) in[i] = static_cast<T>(value(rank, i, iteration));
    ASSERT_EQ(call(in_count > 0 ? in : nullptr, out_count > 0 ? out : nullptr, comm), epcclSuccess)
        << text() << ": " << epcclGetLastError(comm);
    size_t wrong = 0;
    for (size_t i = 0; i < out_count; ++i) wrong += out[i] != expected(rank, ranks, i) ? 1 : 0;
    EXPECT_EQ(wrong, 0U) << "rank " << rank << ": " << text();
    if (out == in || in_place) return;
    for (size_t i = 0; i < in_count; ++i) wrong += in[i] != static_cast<T>(value(rank, i, iteration)) ? 1 : 0;
    EXPECT_EQ(wrong, 0U) << "rank " << rank << ", input: " << text();
  }
};

void sweep(const RankContext& context, const char* algorithm) {
  Comm comm(context, algorithm);
  int iteration = 0;
  for (const Kind kind : all_kinds)
    for (const size_t count : {0, 1, 5, 700, 2048, 2049, 40'000, 300'001})
      for (const bool in_place : {false, true}) {
        const int root = iteration % context.ranks;
        ++iteration;
        Trial<float>{kind, count, epcclFloat32, epcclSum, root, in_place, iteration % 3 == 0, iteration}.run(
            comm, context);
        if (count > 5000) continue;
        Trial<int32_t>{kind, count, epcclInt32, epcclMax, root, in_place, false, iteration}.run(comm,
                                                                                                context);
        Trial<int64_t>{kind, count, epcclInt64, epcclAvg, root, in_place, false, iteration}.run(comm,
                                                                                                context);
        Trial<int8_t>{kind, count, epcclInt8, epcclMin, root, in_place, true, iteration}.run(comm, context);
      }
}

struct Case {
  std::vector<int> ranks_per_node;
  const char* algorithm;
};

class Collectives : public testing::TestWithParam<Case> {};

TEST_P(Collectives, GiveWhatNcclDefines) {
  run_ranks({GetParam().ranks_per_node, {}, {}},
            [](const RankContext& context) { sweep(context, GetParam().algorithm); });
}

// Every ring wraps, every staged call takes many rounds, and outputs are written past the cache.
TEST_P(Collectives, GiveTheSameWithTinyConstants) {
  run_ranks({GetParam().ranks_per_node,
             {{"EPCCL_CHUNK_SIZE", "2K"},
              {"EPCCL_EAGER_LIMIT", "64"},
              {"EPCCL_SCRATCH_SIZE", "16K"},
              {"EPCCL_STREAMING_SIZE", "1"}},
             {}},
            [](const RankContext& context) { sweep(context, GetParam().algorithm); });
}

TEST_P(Collectives, GiveTheSameWithoutReadingPeersMemory) {
  run_ranks({GetParam().ranks_per_node, {{"EPCCL_CMA", "0"}, {"EPCCL_SCRATCH_SIZE", "256K"}}, {}},
            [](const RankContext& context) { sweep(context, GetParam().algorithm); });
}

INSTANTIATE_TEST_SUITE_P(Shapes, Collectives,
                         testing::Values(Case{{1}, nullptr}, Case{{4}, nullptr}, Case{{1, 1}, nullptr},
                                         Case{{2, 2}, "flat"}, Case{{2, 2}, "two_stage"},
                                         Case{{3, 1, 2}, nullptr}, Case{{3, 1, 2}, "flat"}),
                         [](const auto& it) {
                           std::string name = it.param.algorithm == nullptr ? "Auto" : it.param.algorithm;
                           for (const int count : it.param.ranks_per_node) name += fmt::format("_{}", count);
                           return name;
                         });

// What peers read lies in scratch for them: of each other's memory they need to read nothing, whatever the call.
TEST(CollectivesOfPlainMemory, ReadNothingOfPeersWhereInputsAreStaged) {
  run_ranks({{4}, {{"EPCCL_STAGING", "always"}}, {}}, [](const RankContext& context) {
    Comm comm(context);
    int iteration = 0;
    for (const bool refused : {false, true}) {
      if (refused) refuse_calls({SYS_process_vm_readv});  // the library has already found that it may read
      for (const Kind kind : all_kinds)
        for (const size_t count : {1000, 8'000, 300'001})
          for (const bool in_place : {false, true}) {
            const int root = iteration % context.ranks;
            Trial<float>{kind, count, epcclFloat32, epcclSum, root, in_place, false, ++iteration}.run(
                comm, context);
          }
    }
  });
}

// Who waits for nobody does not wait for those who have not even called.
TEST(RootOfSmallCalls, RunsAheadOfTheOthers) {
  constexpr int ranks = 3, calls = 20;
  const UniqueFd gate(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  run_ranks({{ranks}, {}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    if (context.rank > 0) {
      pollfd entry{gate.get(), POLLIN, 0};
      ASSERT_EQ(poll(&entry, 1, 30'000), 1) << "the root waits";
      eventfd_t passed = 0;
      ASSERT_EQ(eventfd_read(gate.get(), &passed), 0);
    }
    for (int i = 0; i < calls; ++i)
      Trial<float>{
          i % 2 == 0 ? Kind::broadcast : Kind::scatter, 10, epcclFloat32, epcclSum, 0, false, false, i}
          .run(comm, context);
    if (context.rank == 0) {
      EXPECT_EQ(eventfd_write(gate.get(), ranks - 1), 0);
    }
  });
}

// A small call behind a large one, and the reverse, while some ranks are many calls ahead.
TEST(CallsOfAllSizes, AreRightWithRanksOutOfStep) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (const std::vector<int>& shape : {std::vector{4}, std::vector{2, 2}})
    run_ranks({shape, {}, {}}, [seed](const RankContext& context) {
      Comm comm(context);
      std::mt19937 common(seed), own(seed + 1 + static_cast<unsigned>(context.rank));
      for (int i = 0; i < 500 && !testing::Test::HasFailure(); ++i) {
        const Kind kind = all_kinds[common() % all_kinds.size()];
        const size_t count = std::array<size_t, 5>{1, 100, 1500, 4000, 30'000}[common() % 5];
        const auto root = static_cast<int>(common() % static_cast<unsigned>(context.ranks));
        const bool in_place = common() % 2 == 0;
        if (own() % 8 == 0) usleep(own() % 300);
        Trial<float>{kind, count, epcclFloat32, epcclSum, root, in_place, false, i}.run(comm, context);
      }
    });
}

class PremulSum : public testing::TestWithParam<std::vector<int>> {};

// As in an average over ranks with weights of their own.
TEST_P(PremulSum, MultipliesEveryRanksInputByItsOwnScalar) {
  run_ranks({GetParam(), {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    for (const epcclScalarResidence_t residence : {epcclScalarHostImmediate, epcclScalarDevice})
      for (const size_t count : {3, 5000, 100'000}) {
        auto scalar = static_cast<float>(context.rank + 1);
        epcclRedOp_t op = epcclSum;
        ASSERT_EQ(epcclRedOpCreatePreMulSum(&op, &scalar, epcclFloat32, residence, comm), epcclSuccess);
        std::vector<float> data(count, 2);
        ASSERT_EQ(epcclAllReduce(data.data(), data.data(), count, epcclFloat32, op, comm, nullptr),
                  epcclSuccess)
            << epcclGetLastError(comm);
        const auto ranks = static_cast<float>(context.ranks);
        EXPECT_EQ(data, std::vector<float>(count, ranks * (ranks + 1)));
        EXPECT_EQ(epcclRedOpDestroy(op, comm), epcclSuccess);
        EXPECT_EQ(epcclAllReduce(data.data(), data.data(), count, epcclFloat32, op, comm, nullptr),
                  epcclInvalidArgument);
      }
  });
}

// In another order of the additions, or with products that are rounded on some ranks only, these would differ.
TEST_P(PremulSum, GivesAllRanksTheSameBits) {
  constexpr std::array<float, 4> inputs = {1e8F, 1, -1e8F, 3};
  run_ranks({GetParam(), {}, {}}, [&](const RankContext& context) {
    Comm comm(context);
    const float scalar = 1;
    epcclRedOp_t op = epcclSum;
    ASSERT_EQ(epcclRedOpCreatePreMulSum(&op, const_cast<float*>(&scalar), epcclFloat32,
                                        epcclScalarHostImmediate, comm),
              epcclSuccess);
    for (const size_t count : {1, 3, 1000}) {
      std::vector<float> data(count, inputs[static_cast<size_t>(context.rank) % inputs.size()]);
      std::vector<float> all(count * static_cast<size_t>(context.ranks));
      ASSERT_EQ(epcclAllReduce(data.data(), data.data(), count, epcclFloat32, op, comm, nullptr),
                epcclSuccess)
          << epcclGetLastError(comm);
      ASSERT_EQ(epcclAllGather(data.data(), all.data(), count, epcclFloat32, comm, nullptr), epcclSuccess);
      for (int rank = 0; rank < context.ranks; ++rank)
        EXPECT_EQ(
            std::memcmp(data.data(), all.data() + count * static_cast<size_t>(rank), count * sizeof(float)),
            0)
            << "rank " << rank << " of " << context.ranks << ", count " << count;
    }
    EXPECT_EQ(epcclRedOpDestroy(op, comm), epcclSuccess);
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, PremulSum,
                         testing::Values(std::vector{1}, std::vector{4}, std::vector{1, 1, 1},
                                         std::vector{3, 2}));

TEST(ReduceOperation, ThatIsWrongIsRefusedAndNamed) {
  run_ranks({{2}, {}, {}}, [](const RankContext& context) {
    Comm comm(context);
    float x = 1;
    const auto refused = [&](epcclResult_t result, const char* what) {
      EXPECT_EQ(result, epcclInvalidArgument);
      EXPECT_NE(std::string(epcclGetLastError(comm)).find(what), std::string::npos)
          << epcclGetLastError(comm);
    };
    refused(epcclAllReduce(&x, &x, 1, epcclFloat32, static_cast<epcclRedOp_t>(77), comm, nullptr), "op 77");
    refused(epcclAllReduce(&x, &x, 1, static_cast<epcclDataType_t>(99), epcclSum, comm, nullptr),
            "datatype 99");
    refused(epcclReduce(&x, &x, 1, epcclFloat32, epcclSum, 2, comm, nullptr), "root 2");
    refused(epcclAllReduce(nullptr, &x, 1, epcclFloat32, epcclSum, comm, nullptr), "sendbuff is NULL");
    refused(epcclRedOpDestroy(epcclSum, comm), "op 0");
    epcclRedOp_t op = epcclSum;
    refused(epcclRedOpCreatePreMulSum(&op, nullptr, epcclFloat32, epcclScalarHostImmediate, comm), "scalar");
    ASSERT_EQ(epcclRedOpCreatePreMulSum(&op, &x, epcclFloat32, epcclScalarHostImmediate, comm), epcclSuccess);
    double y = 1;
    refused(epcclAllReduce(&y, &y, 1, epcclFloat64, op, comm, nullptr), "made for datatype float32");
  });
}

}  // namespace
}  // namespace epccl::tests
