// A parcel is withdrawn or taken up, never both, however origin and carrier meet at it.
#include <gtest/gtest.h>
#include <sys/mman.h>

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

/// Memory as a segment's: zero, and only there where it is touched.
class BoardMemory {
 public:
  explicit BoardMemory(uint64_t bytes)
      : bytes_(bytes),
        base_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0)) {}
  ~BoardMemory() { munmap(base_, bytes_); }
  BoardMemory(const BoardMemory&) = delete;
  BoardMemory& operator=(const BoardMemory&) = delete;
  std::byte* base() const { return static_cast<std::byte*>(base_); }

 private:
  const uint64_t bytes_;
  void* const base_;
};

// More than there are bits in a word.
TEST(ParcelBoard, TellsTheCarrierWhichOfManyRanksHasLaidOutAParcel) {
  constexpr int ranks = 100, nodes = 2, carrier = 3;
  const BoardMemory memory(ParcelBoard::bytes(ranks, nodes));
  ParcelBoard at_carrier(memory.base(), ranks, nodes, carrier);
  for (const int origin : {0, 6, 63, 64, 70, 99}) {
    ParcelBoard(memory.base(), ranks, nodes, origin).lay_out(carrier, 1);
    LocalMask only_it{};
    only_it[static_cast<size_t>(origin) / 64] = uint64_t{1} << (origin % 64);
    EXPECT_EQ(at_carrier.collect(), only_it) << "rank " << origin;
    EXPECT_TRUE(ParcelBoard::take_up(at_carrier.slot(origin, carrier, 1)));
  }
}

TEST(ParcelBoard, IsNoneWhereItWouldTakeTooMuchMemory) {
  EXPECT_GT(ParcelBoard::bytes(8, 64), 0U);
  EXPECT_EQ(ParcelBoard::bytes(node_max_ranks, 64), 0U);
}

}  // namespace
}  // namespace epccl::transports
