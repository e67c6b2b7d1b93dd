#include "runtime/queues/graph_room.hpp"

#include <gtest/gtest.h>

#include "device/device.hpp"

namespace epccl::runtime {
namespace {

TEST(GraphRoom, PutsOffFreesWhileAReplayWaitsForAnotherRankOrForTheHost) {
  auto made = GraphRoom::make(device::host_device(), 2, 4096);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const std::shared_ptr<GraphRoom> room = *made;
  int freed = 0;
  const auto free = [&freed] { device::HeldStreams::when_none([&freed] { ++freed; }); };
  struct {
    const char* who;
    uint64_t &begun, &over;
  } const waits[] = {{"a replay of copies", room->report().begun, room->report().over},
                     {"a call that the host makes", room->host_calls().come, room->host_calls().over}};
  for (const auto& each : waits) {
    const int before = freed;
    ++each.begun;
    free();
    EXPECT_EQ(freed, before) << each.who;
    ++each.over;
    device::HeldStreams::retry();
    EXPECT_EQ(freed, before + 1) << each.who;
  }
  ++room->host_calls().come;
  room->give_up();
  free();
  EXPECT_EQ(freed, 3) << "nothing waits any more";
}

}  // namespace
}  // namespace epccl::runtime
