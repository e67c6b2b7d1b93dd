// A GPU, or a host, whose memory is used up when a call needs some. Only the rank that has too little fails; its peers wait for it, and
// when it has made room the same call is made.
#include <gmock/gmock.h>

#include <functional>
#include <string>

#include "../api/ranks.hpp"
#include "fake_driver.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {
namespace {

using ::testing::ContainsRegex;

constexpr long unlimited = 8L << 30;

/// Of `what` ("memory" of the GPU, "pinned_memory" of the host) this process gets no more than `room` bytes from now on.
void leave_room(const char* what, long room) {
  const bool is_pinned = std::string(what) == "pinned_memory";
  fake_cuda_set(what, fake_cuda_live(is_pinned ? "pinned" : "memory") + room);
}

/// `call` fails and says what it asked for, and succeeds when there is memory again.
void fails_for_want_of(const char* what, const std::function<epcclResult_t()>& call) {
  EXPECT_EQ(call(), epcclUnhandledDeviceError);
  const bool is_pinned = std::string(what) == "pinned_memory";
  EXPECT_THAT(epcclGetLastError(nullptr),
              ContainsRegex(is_pinned ? "allocating [0-9]+ bytes of pinned host memory: "
                                      : "allocating [0-9]+ bytes where [0-9]+ of [0-9]+ are free: "));
  fake_cuda_set(what, unlimited);
  EXPECT_EQ(call(), epcclSuccess) << epcclGetLastError(nullptr);
}

struct Case {
  std::vector<int> ranks_per_node;
  const char* what;
};
std::ostream& operator<<(std::ostream& out, const Case& one) {
  return out << one.ranks_per_node.size() << "Nodes_" << one.what;
}

class LittleMemory : public ::testing::TestWithParam<Case> {};

TEST_P(LittleMemory, FailsTheFirstCallOfOneRankAloneAndTheNextOneIsMade) {
  const Case& one = GetParam();
  run_ranks({one.ranks_per_node, {}, {}}, [&](const RankContext& context) {
    GpuRank gpu;
    const int base = 10 * context.rank;
    const GpuArray<int> in(gpu, std::vector<int>{base, base + 1}), out(gpu, 2);
    if (context.rank == 1) leave_room(one.what, 1);
    const Comm comm(context);
    const auto call = [&] {
      return epcclAlltoall(in.data(), out.data(), 1, epcclInt32, comm, gpu.as_epccl());
    };
    if (context.rank == 1) {
      fails_for_want_of(one.what, call);
    } else {
      EXPECT_EQ(call(), epcclSuccess) << epcclGetLastError(nullptr);
    }
    EXPECT_EQ(out.get(), (std::vector<int>{context.rank, 10 + context.rank}));
    context.meet();
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, LittleMemory,
                         ::testing::Values(Case{{2}, "memory"}, Case{{2}, "pinned_memory"},
                                           Case{{1, 1}, "memory"}, Case{{1, 1}, "pinned_memory"}),
                         ::testing::PrintToStringParamName());

// A message that needs as much pinned memory as it is long.
TEST(LittleMemoryOfMessages, FailsTheGroupOfOneRankAloneAndTheNextOneIsMade) {
  constexpr int count = 1 << 20;
  run_ranks({{2}, {{"EPCCL_COPY_ENGINE", "never"}}, {}}, [](const RankContext& context) {
    GpuRank gpu;
    const Comm comm(context);
    const int peer = 1 - context.rank;
    const GpuArray<int> in(gpu, std::vector<int>(count, context.rank)), out(gpu, count);
    const auto call = [&] {
      EXPECT_EQ(epcclGroupStart(), epcclSuccess);  // and the first call that fails is told by the group
      static_cast<void>(epcclSend(in.data(), count, epcclInt32, peer, comm, gpu.as_epccl()));
      static_cast<void>(epcclRecv(out.data(), count, epcclInt32, peer, comm, gpu.as_epccl()));
      return epcclGroupEnd();
    };
    if (context.rank == 1) {
      leave_room("pinned_memory", 1 << 20);
      fails_for_want_of("pinned_memory", call);
    } else {
      EXPECT_EQ(call(), epcclSuccess) << epcclGetLastError(nullptr);
    }
    EXPECT_EQ(out.get(), std::vector<int>(count, peer));
    context.meet();
  });
}

}  // namespace
}  // namespace epccl::tests
