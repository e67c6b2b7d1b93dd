// A parcel is withdrawn or taken up, never both, however origin and carrier meet at it.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "transports/shm/parcel_board.hpp"

namespace epccl::transports {
namespace {

TEST(ParcelSlot, WhoeverComesSecondGetsNothing) {
  ParcelSlot slot{};
  EXPECT_FALSE(ParcelBoard::withdraw(slot));
  EXPECT_FALSE(ParcelBoard::take_up(slot));
  slot.state = ParcelSlot::offered;
  EXPECT_TRUE(ParcelBoard::take_up(slot));
  EXPECT_FALSE(ParcelBoard::withdraw(slot));
  EXPECT_EQ(slot.state, ParcelSlot::held);
  ParcelBoard::put_down(slot, ParcelSlot::offered);
  EXPECT_TRUE(ParcelBoard::withdraw(slot));
  EXPECT_FALSE(ParcelBoard::take_up(slot));
  EXPECT_EQ(slot.state, ParcelSlot::empty);
}

TEST(ParcelSlot, IsWithdrawnOrTakenUpNeverBoth) {
  constexpr uint32_t parcels = 200'000;
  ParcelSlot slot{};
  std::vector<uint8_t> withdrawn(parcels), taken(parcels);
  std::atomic<bool> over{false};
  std::thread carrier([&] {
    while (!over) {
      if (!ParcelBoard::take_up(slot)) continue;
      ++taken[slot.bytes];
      ParcelBoard::put_down(slot, ParcelSlot::carried);
    }
  });
  std::minstd_rand random(7);
  for (uint32_t parcel = 0; parcel < parcels; ++parcel) {
    slot.bytes = parcel;
    slot.state.store(ParcelSlot::offered, std::memory_order_release);
    for (auto pause = random() % 64; pause > 0; --pause) std::atomic_signal_fence(std::memory_order_seq_cst);
    if (ParcelBoard::withdraw(slot))
      ++withdrawn[parcel];
    else
      while (slot.state.load(std::memory_order_acquire) == ParcelSlot::held) std::this_thread::yield();
  }
  over = true;
  carrier.join();
  for (uint32_t parcel = 0; parcel < parcels; ++parcel)
    ASSERT_EQ(withdrawn[parcel] + taken[parcel], 1) << "parcel " << parcel;
}

}  // namespace
}  // namespace epccl::transports
