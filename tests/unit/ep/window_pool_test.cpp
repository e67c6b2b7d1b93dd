// Windows that calls borrow: what is kept, and which one is lent.
#include "ep/handle/window_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "device/host/host_memory.hpp"

namespace epccl::ep {
namespace {

using Loan = WindowPool::Loan;

constexpr size_t mebi = 1 << 20;

Loan borrow(WindowPool& pool, size_t bytes) {
  Result<Loan> loan = pool.lend(bytes);
  EXPECT_TRUE(loan.ok()) << loan.status().message();
  return loan.ok() ? std::move(loan).value() : Loan();
}

const void* address_of(const Loan& loan) {
  return loan.as<void>();
}

/// How many windows are freed by the pool's end.
uint64_t kept_by(std::optional<WindowPool>& pool) {
  const uint64_t before = device::windows_freed();
  pool.reset();
  return device::windows_freed() - before;
}

TEST(WindowPool, LendsTheSameWindowAgain) {
  WindowPool pool;
  const uint64_t freed = device::windows_freed();
  const void* const first = address_of(borrow(pool, mebi));
  for (const size_t bytes : {mebi, mebi - 100, size_t{1}, size_t{0}})
    EXPECT_EQ(address_of(borrow(pool, bytes)), first) << bytes << " bytes";
  EXPECT_EQ(device::windows_freed(), freed);
}

TEST(WindowPool, MakesThemALittleLargerThanAskedFor) {
  WindowPool pool;
  const uint64_t freed = device::windows_freed();
  const void* const first = address_of(borrow(pool, mebi + 1));
  EXPECT_EQ(address_of(borrow(pool, mebi + mebi / 16)), first);
  EXPECT_EQ(device::windows_freed(), freed);
  const std::optional<device::WindowRef> window = device::find_window(first, mebi + 1);
  ASSERT_TRUE(window);
  EXPECT_LE(window->size, mebi + mebi / 8);
}

TEST(WindowPool, LendsTheSmallestThatFits) {
  WindowPool pool;
  const void *small = nullptr, *large = nullptr;
  {
    const Loan one = borrow(pool, 4 * mebi), other = borrow(pool, mebi);
    large = address_of(one);
    small = address_of(other);
  }
  EXPECT_EQ(address_of(borrow(pool, 2 * mebi)), large);
  const Loan first = borrow(pool, mebi / 2), second = borrow(pool, mebi / 2);
  EXPECT_EQ(address_of(first), small);
  EXPECT_EQ(address_of(second), large);
}

TEST(WindowPool, ReplacesTheLargestByALargerOneWhereNoneFits) {
  std::optional<WindowPool> pool(std::in_place);
  const void* small = nullptr;
  {
    const Loan one = borrow(*pool, mebi), other = borrow(*pool, 2 * mebi);
    small = address_of(one);
  }
  const uint64_t freed = device::windows_freed();
  {
    const Loan larger = borrow(*pool, 4 * mebi);
    EXPECT_EQ(device::windows_freed(), freed + 1);
    EXPECT_EQ(address_of(borrow(*pool, 1)), small);
  }
  EXPECT_EQ(kept_by(pool), 2U);
}

TEST(WindowPool, LendsTwoAtOnce) {
  WindowPool pool;
  const Loan one = borrow(pool, mebi), other = borrow(pool, mebi);
  std::memset(one.as<char>(), 1, mebi);
  std::memset(other.as<char>(), 2, mebi);
  EXPECT_EQ(one.as<char>()[0], 1);
  EXPECT_EQ(one.as<char>()[mebi - 1], 1);
}

TEST(WindowPool, KeepsAtMostAsManyAsWereEverLentAtATime) {
  std::optional<WindowPool> pool(std::in_place);
  for (size_t round = 1; round <= 20; ++round) {
    const Loan one = borrow(*pool, round * mebi / 4), two = borrow(*pool, mebi),
               three = borrow(*pool, (21 - round) * mebi / 4);
  }
  EXPECT_EQ(kept_by(pool), 3U);
}

// A loan is moved into where a call keeps them.
TEST(WindowPool, IsGivenBackOnceWhateverBecameOfTheLoan) {
  std::optional<WindowPool> pool(std::in_place);
  {
    Loan one = borrow(*pool, mebi);
    Loan other(std::move(one));
    Loan kept;
    kept = std::move(other);
    EXPECT_NE(address_of(kept), nullptr);
  }
  EXPECT_EQ(kept_by(pool), 1U);
}

TEST(WindowPool, KeepsNothingOfWhatCouldNotBeHad) {
  std::optional<WindowPool> pool(std::in_place);
  EXPECT_FALSE(pool->lend(size_t{1} << 62).ok());
  const void* const first = address_of(borrow(*pool, mebi));
  EXPECT_EQ(address_of(borrow(*pool, mebi)), first);
  EXPECT_EQ(kept_by(pool), 1U);
}

}  // namespace
}  // namespace epccl::ep
