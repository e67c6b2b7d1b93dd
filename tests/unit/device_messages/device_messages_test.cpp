// Messages between memories of devices: in pieces, through few slots, as they lie where the network can, whatever the other end does.
#include "runtime/queues/device_messages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>
#include <vector>

#include "wire.hpp"

namespace epccl::runtime {
namespace {

QueueCall numbered(uint64_t sequence) {
  QueueCall call;
  call.sequence = sequence;
  return call;
}

/// One rank: its plan of nothing but messages, and its memory.
struct End {
  End(Wire& wire, int rank, bool is_direct, uint64_t stage, const plan::RankPlan& plan)
      : network(wire, rank, is_direct), messages(device::host_device(), network, stage, 2) {
    Status status = messages.prepare();
    EXPECT_TRUE(status.ok()) << status.message();
    auto made = make_device_program(plan, topology::Cluster::uniform(2, 1), 1, messages.piece_bytes());
    EXPECT_TRUE(made.ok());
    program = std::move(made).value();
    memory.resize(std::max(plan.input_bytes, plan.output_bytes));
    messages.begin(numbered(1), program, {memory.data(), memory.data(), nullptr});
  }
  void start(uint32_t step) {
    const plan::Step& what = program.plan.steps[step].step;
    const bool is_send = what.kind == plan::Kind::send;
    const plan::Location& at = is_send ? what.source : what.destination;
    const DeviceMessages::Message message{
        step, what.peer, program.first_piece[step], at.buffer, memory.data() + at.offset, what.total_bytes()};
    is_send ? messages.send(message) : messages.recv(message);
  }

  WireEnd network;
  DeviceMessages messages;
  DeviceProgram program;
  std::vector<std::byte> memory;
};

class DeviceMessagesTest : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(DeviceMessagesTest, ArriveWhateverIsStartedFirst) {
  std::mt19937_64 random(new_seed());
  for (const uint64_t stage : {100, 4000}) {
    constexpr uint32_t count = 40;
    plan::Builder sends(0), recvs(1);
    uint64_t at = 0;
    for (uint32_t tag = 0; tag < count; ++tag) {
      const uint64_t bytes = 1 + random() % (tag % 5 == 0 ? 2000 : 120);
      sends.send(1, tag, sends.input(at), bytes);
      recvs.recv(0, tag, recvs.output(at), bytes);
      at += bytes;
    }
    Wire wire(random());
    const auto [sender_is_direct, receiver_is_direct] = GetParam();
    End sender(wire, 0, sender_is_direct, stage, std::move(sends).take());
    End receiver(wire, 1, receiver_is_direct, stage, std::move(recvs).take());
    for (std::byte& each : sender.memory) each = static_cast<std::byte>(random());
    for (End* end : {&sender, &receiver}) {
      std::vector<uint32_t> order(count);
      for (uint32_t step = 0; step < count; ++step) order[step] = step;
      std::ranges::shuffle(order, random);
      for (const uint32_t step : order) end->start(step);
    }
    size_t complete = 0;
    while (complete < 2 * count || !sender.messages.drained()) {
      for (End* end : {&sender, &receiver}) {
        const auto moved = end->messages.move();
        ASSERT_TRUE(moved.ok()) << moved.status().message();
        while (end->messages.done()) ++complete;
        if (!*moved) std::this_thread::yield();
      }
    }
    EXPECT_EQ(receiver.memory, sender.memory);
    EXPECT_EQ(wire.left(), 0U);
    EXPECT_EQ(sender.network.through_host == 0, sender_is_direct);
    EXPECT_EQ(receiver.network.through_host == 0, receiver_is_direct);
    EXPECT_FALSE(sender.messages.copying() || receiver.messages.copying());
  }
}

INSTANTIATE_TEST_SUITE_P(Ends, DeviceMessagesTest, testing::Combine(testing::Bool(), testing::Bool()),
                         [](const auto& it) {
                           const std::string from = std::get<0>(it.param) ? "Direct" : "Staged";
                           return from + (std::get<1>(it.param) ? "ToDirect" : "ToStaged");
                         });

}  // namespace
}  // namespace epccl::runtime
