// Memory that the program frees, moves and gets again at the same address: devices must see the new pages.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "device/host/host_memory.hpp"
#include "soft_roce.hpp"

namespace epccl::transports {
namespace {

constexpr size_t bytes = 256 << 10;

std::byte* map_at(std::byte* wanted, size_t length = bytes) {
  const int fixed = wanted != nullptr ? MAP_FIXED : 0;
  void* got = ::mmap(wanted, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  return got == MAP_FAILED ? nullptr : static_cast<std::byte*>(got);
}

class VerbsMemory : public OnSoftRoce {
 protected:
  void SetUp() override {
    OnSoftRoce::SetUp();
    if (!IsSkipped() && verbs::MemoryWatch::get() == nullptr) GTEST_SKIP() << "no userfaultfd";
  }
  /// From one piece of memory to another; true when it arrived.
  template <typename Maker>
  bool moves(Fabric<Maker>& fabric, std::byte* from, std::byte* to) {
    const auto data = pattern(0, 1, ++key_, bytes);
    std::memcpy(from, data.data(), bytes);
    std::memset(to, 0xee, bytes);
    Completion sending, receiving;
    EXPECT_TRUE(fabric[1].recv(0, key_, to, bytes, receiving).ok());
    EXPECT_TRUE(fabric[0].send(1, key_, from, bytes, sending).ok());
    EXPECT_TRUE(fabric.drive_until([&] { return sending.finished() && receiving.finished(); }));
    return std::memcmp(to, data.data(), bytes) == 0;
  }
  MessageKey key_ = 0;
};

TEST_F(VerbsMemory, IsRegisteredOnceAsLongAsItStays) {
  Fabric<Verbs> fabric(2);
  std::byte *from = map_at(nullptr), *to = map_at(nullptr);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(moves(fabric, from, to));
  EXPECT_EQ(fabric[0].work().registrations, 1u);
  EXPECT_EQ(fabric[1].work().registrations, 1u);
  ::munmap(from, bytes);
  ::munmap(to, bytes);
}

TEST_F(VerbsMemory, FreedAndMappedAgainAtTheSameAddressIsRegisteredAnew) {
  Fabric<Verbs> fabric(2);
  std::byte *from = map_at(nullptr), *to = map_at(nullptr);
  ASSERT_TRUE(moves(fabric, from, to));
  ::munmap(from, bytes);
  ASSERT_EQ(map_at(from), from);
  EXPECT_TRUE(moves(fabric, from, to)) << "the old pages were sent";
  ::munmap(to, bytes);
  ASSERT_EQ(map_at(to), to);
  EXPECT_TRUE(moves(fabric, from, to)) << "the old pages were written";
  EXPECT_EQ(fabric[0].work().registrations, 2u);
  EXPECT_EQ(fabric[1].work().registrations, 2u);
  // Over it, without a munmap.
  ASSERT_EQ(map_at(to), to);
  EXPECT_TRUE(moves(fabric, from, to));
  // Emptied in place.
  ::madvise(to, bytes, MADV_DONTNEED);
  EXPECT_TRUE(moves(fabric, from, to));
  EXPECT_EQ(fabric[1].work().registrations, 4u);
  for (std::byte* memory : {from, to}) ::munmap(memory, bytes);
}

TEST_F(VerbsMemory, MovedAwayIsForgottenWhereItWas) {
  Fabric<Verbs> fabric(2);
  std::byte *from = map_at(nullptr), *to = map_at(nullptr);
  ASSERT_TRUE(moves(fabric, from, to));
  void* const elsewhere = ::mremap(to, bytes, 2 * bytes, MREMAP_MAYMOVE);
  ASSERT_NE(elsewhere, MAP_FAILED);
  ASSERT_NE(elsewhere, to) << "it could grow in place";
  ASSERT_EQ(map_at(to), to);
  EXPECT_TRUE(moves(fabric, from, to));
  EXPECT_EQ(fabric[1].work().registrations, 2u);
  ::munmap(from, bytes);
  ::munmap(to, bytes);
  ::munmap(elsewhere, 2 * bytes);
}

TEST_F(VerbsMemory, OfWhichAPartIsFreedIsForgotten) {
  Fabric<Verbs> fabric(2);
  std::byte *from = map_at(nullptr), *to = map_at(nullptr);
  ASSERT_TRUE(moves(fabric, from, to));
  ASSERT_EQ(map_at(to + bytes / 2, 4096), to + bytes / 2);
  EXPECT_TRUE(moves(fabric, from, to));
  EXPECT_EQ(fabric[1].work().registrations, 2u);
  ::munmap(from, bytes);
  ::munmap(to, bytes);
}

TEST_F(VerbsMemory, FreedByMallocAndGotAgainIsNotTakenForTheOld) {
  Fabric<Verbs> fabric(2);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> from(bytes), to(bytes);
    ASSERT_TRUE(moves(fabric, from.data(), to.data())) << "round " << i;
  }
}

/// As in a container that permits no userfaultfd: of other memory nobody tells when it changes.
struct VerbsUnwatched : Verbs {
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    EPCCL_ASSIGN(const net::Endpoint loopback, net::local_address("lo"));
    VerbsOptions unwatched = options(rank);
    unwatched.keep = verbs::RegisteredMemory::Keep::windows;
    return VerbsTransport::create(rank, ranks, loopback, std::move(lookup), unwatched);
  }
};

std::byte* new_window() {
  const auto made = device::allocate_window(bytes);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? static_cast<std::byte*>(*made) : nullptr;
}

class VerbsWindows : public VerbsMemory {
 protected:
  void SetUp() override { OnSoftRoce::SetUp(); }
};

TEST_F(VerbsWindows, StayRegisteredWhereOtherMemoryDoesNot) {
  Fabric<VerbsUnwatched> fabric(2);
  std::byte *from = map_at(nullptr), *to = new_window();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(moves(fabric, from, to));
  EXPECT_EQ(fabric[0].work().registrations, 3u);
  EXPECT_EQ(fabric[1].work().registrations, 1u);
  ::munmap(from, bytes);
  EXPECT_TRUE(device::free_window(to).ok());
}

TEST_F(VerbsWindows, FreedAndMadeAgainAtTheSameAddressAreRegisteredAnew) {
  Fabric<VerbsUnwatched> fabric(2);
  std::byte *from = new_window(), *to = new_window();
  ASSERT_TRUE(moves(fabric, from, to));
  ASSERT_TRUE(device::free_window(to).ok());
  ASSERT_EQ(new_window(), to) << "it lies elsewhere now: the test shows nothing";
  EXPECT_TRUE(moves(fabric, from, to)) << "the old pages were written";
  EXPECT_EQ(fabric[1].work().registrations, 2u);
  ASSERT_TRUE(device::free_window(from).ok());
  ASSERT_EQ(new_window(), from) << "it lies elsewhere now: the test shows nothing";
  EXPECT_TRUE(moves(fabric, from, to)) << "the old pages were sent";
  for (std::byte* window : {from, to}) EXPECT_TRUE(device::free_window(window).ok());
}

TEST_F(VerbsWindows, AreGivenUpWhenTheyAreFreed) {
  const auto freed_is_given_up = [&](auto& fabric) {
    std::byte *from = new_window(), *to = new_window();
    ASSERT_TRUE(moves(fabric, from, to));
    EXPECT_EQ(fabric[1].kept_registrations(), 1u);
    for (std::byte* window : {from, to}) ASSERT_TRUE(device::free_window(window).ok());
    EXPECT_TRUE(fabric.drive_until([&] {
      return fabric[0].kept_registrations() + fabric[1].kept_registrations() == 0;
    })) << "their pages are pinned still";
  };
  Fabric<VerbsUnwatched> unwatched(2);
  freed_is_given_up(unwatched);
  Fabric<Verbs> watched(2);
  freed_is_given_up(watched);
}

TEST_F(VerbsMemory, ThatMayOnlyBeReadCanBeSent) {
  Fabric<Verbs> fabric(2);
  std::byte *from = map_at(nullptr), *to = map_at(nullptr);
  std::memset(from, 0x5a, bytes);
  ASSERT_EQ(::mprotect(from, bytes, PROT_READ), 0);
  Completion sending, receiving;
  ASSERT_TRUE(fabric[1].recv(0, 1, to, bytes, receiving).ok());
  ASSERT_TRUE(fabric[0].send(1, 1, from, bytes, sending).ok());
  ASSERT_TRUE(fabric.drive_until([&] { return sending.finished() && receiving.finished(); }));
  EXPECT_EQ(sending.state, Completion::State::done) << sending.status.message();
  EXPECT_EQ(std::memcmp(from, to, bytes), 0);
  ::munmap(from, bytes);
  ::munmap(to, bytes);
}

}  // namespace
}  // namespace epccl::transports
