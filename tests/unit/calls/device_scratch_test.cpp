#include "runtime/engines/device_scratch.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "runtime/engines/kept_memory.hpp"
#include "runtime/queues/near_words.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t call_bytes = 1000;

TEST(DeviceScratch, HasAPartForEachCallUnderWayAndNearWordsBehindThem) {
  DeviceScratch scratch(device::host_device(), 1);
  ASSERT_TRUE(scratch.make(call_bytes, 2).ok());
  std::byte* const base = scratch.data();
  EXPECT_EQ(scratch.bytes(), 2 * call_bytes);
  EXPECT_FALSE(scratch.has_near_words()) << "they have not been cleared";
  std::memset(base, 0xa5, scratch.bytes_with_near_words());
  const auto queue = device::host_device().make_queue(device::QueueKind::copy_engine);
  ASSERT_TRUE(queue.ok() && scratch.clear_near_words(**queue).ok() && (*queue)->synchronize().ok());
  EXPECT_TRUE(scratch.has_near_words());
  EXPECT_EQ(scratch.of_call(base, 7) - base, 1000);
  EXPECT_EQ(scratch.of_call(base, 8), base);
  const device::SignalWord* const near = scratch.near_words(base);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(near), base + 2 * call_bytes);
  for (int slot = 0; slot < transports::node_counters; ++slot) EXPECT_EQ(near[slot].load(), 0U);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(near + transports::node_counters),
            base + scratch.bytes_with_near_words());
}

const auto is_there = [] { return true; };

TEST(DeviceScratch, IsNotHeldOfARankThatMayBeGone) {
  DeviceScratch mine(device::host_device(), 2), others(device::host_device(), 2);
  ASSERT_TRUE(others.make(call_bytes, 2).ok());  // where that of the rank was
  EXPECT_FALSE(mine.hold(1, others.data(), [] { return false; }));
  EXPECT_TRUE(mine.hold(1, others.data(), is_there));
  EXPECT_TRUE(mine.hold(1, others.data(), [] { return false; })) << "it is held from before";
}

TEST(DeviceScratch, IsThereAsLongAsARankOfTheProcessHoldsIt) {
  DeviceScratch mine(device::host_device(), 2);
  std::optional<DeviceScratch> theirs(std::in_place, device::host_device(), 2);
  ASSERT_TRUE(theirs->make(call_bytes, 2).ok());
  const std::byte* const address = theirs->data();
  EXPECT_TRUE(mine.hold(1, address, is_there));
  theirs.reset();
  EXPECT_NE(KeptMemory::at(address), nullptr);
  EXPECT_TRUE(mine.hold(1, address, is_there)) << "once more, of the next call";
  DeviceScratch late(device::host_device(), 2);
  EXPECT_TRUE(late.hold(1, address, is_there));
}

TEST(DeviceScratch, IsGoneWhenNobodyHoldsItAndThenNobodyCan) {
  std::optional<DeviceScratch> theirs(std::in_place, device::host_device(), 2);
  ASSERT_TRUE(theirs->make(call_bytes, 2).ok());
  const std::byte* const address = theirs->data();
  std::optional<DeviceScratch> mine(std::in_place, device::host_device(), 2);
  EXPECT_TRUE(mine->hold(1, address, is_there));
  theirs.reset();
  mine.reset();
  DeviceScratch late(device::host_device(), 2);
  EXPECT_FALSE(late.hold(1, address, is_there));
}

// A GPU has places for so many kernels, and those that wait must not have all of them.
TEST(WaitingKernels, AreSoManyAtATime) {
  auto first = take_waiting_kernel(2);
  const auto second = take_waiting_kernel(2);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(take_waiting_kernel(2), nullptr);
  EXPECT_EQ(take_waiting_kernel(1), nullptr);
  first.reset();
  EXPECT_NE(take_waiting_kernel(2), nullptr);
}

TEST(NearWords, AreOnlyRaisedWhereNoKernelLooks) {
  std::vector<device::SignalWord> own(4), theirs(4);
  const NearWords raised({}, own.data(), nullptr);
  EXPECT_EQ(raised.raised(3), own.data() + 3);
  EXPECT_EQ(raised.looked_at(1, 3), nullptr);
  const NearWords both({own.data(), theirs.data(), nullptr}, own.data(), take_waiting_kernel(1));
  EXPECT_EQ(both.looked_at(1, 2), theirs.data() + 2);
  EXPECT_EQ(both.looked_at(2, 2), nullptr);
  EXPECT_EQ(NearWords().raised(0), nullptr);
  EXPECT_EQ(NearWords().looked_at(0, 0), nullptr);
}

}  // namespace
}  // namespace epccl::runtime
