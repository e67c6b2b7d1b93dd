// epcclConfig_t of other versions and with wrong values; group simulation; windows; the device number.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "exchange.hpp"
#include "ranks.hpp"

namespace epccl::tests {
namespace {

void on_one_rank(const std::function<void(const RankContext&)>& body) {
  run_ranks({{1}, {}, {}}, body);
}

epcclResult_t join(const RankContext& context, epcclConfig_t* config, epcclComm_t* comm) {
  return epcclCommInitRankConfig(comm, 1, context.id, 0, config);
}

// What was behind the fields of the first version is not the library's to read.
TEST(Config, OfTheFirstVersionIsReadAsFarAsItGoes) {
  on_one_rank([](const RankContext& context) {
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    config.size = offsetof(epcclConfig_t, blocking);
    config.blocking = 0;
    config.splitShare = 77;
    config.netName = "nonsense";
    epcclComm_t comm = nullptr;
    ASSERT_EQ(join(context, &config, &comm), epcclSuccess)
        << epcclGetLastError(nullptr);  // blocking, that is
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(Config, OfALaterVersionIsReadAsFarAsIsKnown) {
  on_one_rank([](const RankContext& context) {
    struct {
      epcclConfig_t known = EPCCL_CONFIG_INITIALIZER;
      int unknown = 5;
    } later;
    later.known.size = sizeof later;
    later.known.version += 100;
    epcclComm_t comm = nullptr;
    ASSERT_EQ(join(context, &later.known, &comm), epcclSuccess) << epcclGetLastError(nullptr);
    EXPECT_EQ(epcclCommDestroy(comm), epcclSuccess);
  });
}

TEST(Config, WithWrongValuesIsRefusedByNameAndValue) {
  on_one_rank([](const RankContext& context) {
    epcclComm_t comm = nullptr;
    const auto refused = [&](const char* words, const std::function<void(epcclConfig_t&)>& spoil) {
      epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
      spoil(config);
      EXPECT_EQ(join(context, &config, &comm), epcclInvalidArgument);
      EXPECT_NE(std::strstr(epcclGetLastError(nullptr), words), nullptr) << epcclGetLastError(nullptr);
      EXPECT_EQ(comm, nullptr);
    };
    refused("config.blocking is 2", [](epcclConfig_t& config) { config.blocking = 2; });
    refused("config.splitShare is -1", [](epcclConfig_t& config) { config.splitShare = -1; });
    refused("config.firstCalls is 2", [](epcclConfig_t& config) { config.firstCalls = 2; });
    refused("config.shrinkShare is 9", [](epcclConfig_t& config) { config.shrinkShare = 9; });
    refused("\"pigeons\"", [](epcclConfig_t& config) { config.netName = "pigeons"; });
    refused("config.timeout is not a number",
            [](epcclConfig_t& config) { config.timeout = std::numeric_limits<double>::quiet_NaN(); });
    refused("config.magic", [](epcclConfig_t& config) { config.magic = 0xcafebeef; });
  });
}

TEST(Config, OfTheEnvironmentIsRefusedByNameAndValue) {
  for (const char* blocks : {"-1", "1000000000"})
    run_ranks({{1}, {{"EPCCL_MAX_CTAS", blocks}}, {}}, [blocks](const RankContext& context) {
      epcclComm_t comm = nullptr;
      EXPECT_EQ(join(context, nullptr, &comm), epcclInvalidArgument);
      const std::string words = fmt::format("EPCCL_MAX_CTAS=\"{}\": want integer 0..", blocks);
      EXPECT_NE(std::strstr(epcclGetLastError(nullptr), words.c_str()), nullptr)
          << epcclGetLastError(nullptr);
      EXPECT_EQ(comm, nullptr);
    });
}

// Nor may what it is multiplied with make it small.
TEST(Config, OfMoreScratchThanAnyMachineHasIsRefused) {
  for (const char* bytes : {"4194304T", "18446744073709551615"})
    run_ranks({{1}, {{"EPCCL_SCRATCH_SIZE", bytes}}, {}}, [](const RankContext& context) {
      epcclComm_t comm = nullptr;
      EXPECT_EQ(join(context, nullptr, &comm), epcclInvalidArgument);
      EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "EPCCL_SCRATCH_SIZE"), nullptr)
          << epcclGetLastError(nullptr);
    });
}

TEST(Config, CanForbidTheNetwork) {
  run_ranks({{1, 1}, {}, {}}, [](const RankContext& context) {
    epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
    config.netName = "none";
    epcclComm_t comm = nullptr;
    EXPECT_NE(epcclCommInitRankConfig(&comm, 2, context.id, context.rank, &config), epcclSuccess);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "none"), nullptr) << epcclGetLastError(nullptr);
  });
}

TEST(Device, IsTheFirstUnlessInitAllWasToldOtherwise) {
  on_one_rank([](const RankContext& context) {
    const Comm comm(context);
    int device = -1;
    EXPECT_EQ(epcclCommDevice(comm, &device), epcclSuccess);
    EXPECT_EQ(device, 0);
    EXPECT_EQ(epcclCommDevice(comm, nullptr), epcclInvalidArgument);
    EXPECT_EQ(epcclCommDevice(nullptr, &device), epcclInvalidArgument);
  });
}

TEST(Window, IsRegisteredAndDeregisteredOnce) {
  on_one_rank([](const RankContext& context) {
    const Comm comm(context);
    std::vector<char> buffer(4096);
    epcclWindow_t window = nullptr, symmetric = nullptr;
    ASSERT_EQ(epcclCommWindowRegister(comm, buffer.data(), buffer.size(), &window, EPCCL_WIN_DEFAULT),
              epcclSuccess);
    ASSERT_EQ(epcclCommWindowRegister(comm, buffer.data(), 100, &symmetric, EPCCL_WIN_COLL_SYMMETRIC),
              epcclSuccess);
    EXPECT_NE(window, nullptr);
    EXPECT_NE(window, symmetric);
    EXPECT_EQ(epcclCommWindowDeregister(comm, window), epcclSuccess);
    EXPECT_EQ(epcclCommWindowDeregister(comm, window), epcclInvalidArgument);
    EXPECT_EQ(epcclCommWindowDeregister(comm, symmetric), epcclSuccess);
    EXPECT_EQ(epcclCommWindowRegister(comm, buffer.data(), 1, nullptr, EPCCL_WIN_DEFAULT),
              epcclInvalidArgument);
    EXPECT_EQ(epcclCommWindowRegister(comm, nullptr, 1, &window, EPCCL_WIN_DEFAULT), epcclInvalidArgument);
    EXPECT_EQ(epcclCommWindowRegister(comm, buffer.data(), 1, &window, 64), epcclInvalidArgument);
    EXPECT_NE(std::strstr(epcclGetLastError(nullptr), "winFlags 64"), nullptr) << epcclGetLastError(nullptr);
  });
}

/// What the cost model expects of an alltoall of `count` floats a pair, as two calls of a group where `twice`.
float predicted(epcclComm_t comm, size_t count, bool twice = false) {
  std::vector<float> input(2 * count), output(2 * count);
  epcclSimInfo_t info = EPCCL_SIM_INFO_INITIALIZER;
  EXPECT_EQ(epcclGroupStart(), epcclSuccess);
  for (int time = 0; time < (twice ? 2 : 1); ++time)
    EXPECT_EQ(epcclAlltoall(input.data(), output.data(), count, epcclFloat32, comm, nullptr), epcclSuccess);
  EXPECT_EQ(epcclGroupSimulateEnd(&info), epcclSuccess) << epcclGetLastError(nullptr);
  return info.estimatedTime;
}

// Each rank alone: nothing is run, so nobody waits for anybody.
TEST(GroupSimulation, TellsTheCostModelsTimeAndRunsNothing) {
  run_ranks({{1, 1}, {{"EPCCL_LINK_RATE", "1Gbit"}}, {}}, [](const RankContext& context) {
    const Comm comm(context);
    if (context.rank == 0) {
      const float small = predicted(comm, 1), large = predicted(comm, 1 << 20);
      EXPECT_GT(small, 0);
      EXPECT_GT(large, 4.0F * (1 << 20) * 8 / 1e9F * 1e6F);  // no faster than the wire
      EXPECT_FLOAT_EQ(predicted(comm, 1 << 20, true), 2 * large);
      std::vector<float> data(1 << 20);
      epcclSimInfo_t info = EPCCL_SIM_INFO_INITIALIZER;
      ASSERT_EQ(epcclGroupStart(), epcclSuccess);
      EXPECT_EQ(epcclSend(data.data(), data.size(), epcclFloat32, 1, comm, nullptr), epcclSuccess);
      ASSERT_EQ(epcclGroupSimulateEnd(&info), epcclSuccess) << epcclGetLastError(nullptr);
      EXPECT_GT(info.estimatedTime, 4.0F * (1 << 20) * 8 / 1e9F * 1e6F);
    }
    Exchange exchange(context.rank, 2, 10);
    EXPECT_EQ(exchange.start(comm), epcclSuccess) << epcclGetLastError(comm);
    EXPECT_EQ(exchange.wrong(), 0U);
  });
}

TEST(GroupSimulation, RefusesWhatItCannotTell) {
  on_one_rank([](const RankContext& context) {
    const Comm comm(context);
    epcclSimInfo_t info = EPCCL_SIM_INFO_INITIALIZER;
    EXPECT_EQ(epcclGroupSimulateEnd(&info), epcclInvalidUsage);
    ASSERT_EQ(epcclGroupStart(), epcclSuccess);
    EXPECT_EQ(epcclGroupSimulateEnd(nullptr), epcclInvalidArgument);
    epcclSimInfo_t wrong{};
    EXPECT_EQ(epcclGroupSimulateEnd(&wrong), epcclInvalidArgument);
    // The group is still open.
    epcclComm_t child = nullptr;
    EXPECT_EQ(epcclCommSplit(comm, 0, 0, &child, nullptr), epcclSuccess);
    EXPECT_EQ(epcclGroupSimulateEnd(&info), epcclInvalidUsage);
    EXPECT_EQ(child, nullptr);
    EXPECT_EQ(epcclGroupEnd(), epcclInvalidUsage);
  });
}

}  // namespace
}  // namespace epccl::tests
