// PeerMemory over the host's windows and over a device that only counts: the cache, without a GPU.
#include "transports/cuda_ipc/peer_memory.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace epccl::transports {
namespace {

using device::Device;
using device::MemoryHandle;
using ::testing::HasSubstr;

/// Of a peer's allocations, which it invents; counts what is mapped.
class CountingDevice : public Device {
 public:
  struct Mapped : device::MappedMemory {
    Mapped(CountingDevice& device, uint64_t address, uint64_t size)
        : device_(device), address_(address), size_(size) {
      ++device_.live;
    }
    ~Mapped() override {
      if (device_.may_unmap.valid()) device_.may_unmap.wait();
      --device_.live;
    }
    std::byte* data() const override { return reinterpret_cast<std::byte*>(address_); }
    uint64_t bytes() const override { return size_; }
    CountingDevice& device_;
    const uint64_t address_, size_;
  };
  std::atomic<int> live{0};
  int imported = 0;
  mutable std::optional<std::vector<pid_t>> given_to;  // what was exported last
  std::map<pid_t, uint64_t> closed;
  uint64_t heard = 0;
  bool has_closed = true;              // what was freed
  std::shared_future<void> may_unmap;  // invalid: at any time

  Result<std::unique_ptr<device::MappedMemory>> import_memory(const MemoryHandle& handle) override {
    if (handle.base == 0) return error(Code::device_error, "cannot be mapped");
    ++imported;
    const uint64_t there = 0x10000 * static_cast<uint64_t>(imported) + handle.offset;
    return std::unique_ptr<device::MappedMemory>(
        std::make_unique<Mapped>(*this, there, handle.size - handle.offset));
  }

  device::DeviceKind kind() const override { return device::DeviceKind::cuda; }
  int ordinal() const override { return 0; }
  std::string description() const override { return "counting"; }
  int copy_engines() const override { return 1; }
  int fewest_blocks(const device::Demand&) const override { return 1; }
  int max_reduce_sources() const override { return 1; }
  Result<void*> allocate(device::MemoryKind, uint64_t) override { return no(); }
  Status free(void*) override { return no(); }
  std::optional<device::MemoryInfo> info(const void*) const override { return std::nullopt; }
  using Device::export_memory;
  Result<MemoryHandle> export_memory(const void*, uint64_t,
                                     const std::vector<pid_t>* readers) const override {
    given_to = readers != nullptr ? std::optional(*readers) : std::nullopt;
    return no();
  }
  void closed_by(pid_t reader, uint64_t frees) override { closed[reader] = frees; }
  void hear_of_frees(const MemoryHandle& handle, std::span<const MemoryHandle* const>) override {
    heard = std::max(heard, handle.frees);
  }
  bool has_closed_what_was_freed(const MemoryHandle&) const override { return has_closed; }
  Status make_words_visible(void*, uint64_t) override { return no(); }
  void hide_words(void*, std::shared_ptr<const void>) override {}
  Result<std::unique_ptr<device::Queue>> make_queue(device::QueueKind) override { return no(); }
  Result<std::unique_ptr<device::Queue>> borrow_stream(void*) override { return no(); }
  Result<std::unique_ptr<device::QueueEvent>> make_event() override { return no(); }

 private:
  static Status no() { return {Code::internal_error, "not of this device"}; }
};

MemoryHandle handle_of(uint64_t base, uint64_t generation, uint64_t offset = 0) {
  MemoryHandle handle;
  handle.base = base;
  handle.size = 1000;
  handle.generation = generation;
  handle.offset = offset;
  return handle;
}

std::byte* at(PeerMemory& peers, const MemoryHandle& handle, uint64_t call, int local = 0) {
  auto address = peers.address_of(local, handle, 10, call);
  EXPECT_TRUE(address.ok()) << address.status().message();
  return address.ok() ? *address : nullptr;
}

/// A thread of its own unmaps.
void expect_live(const CountingDevice& device, int count) {
  while (device.live > count) std::this_thread::yield();  // the test's timeout ends it
  EXPECT_EQ(device.live, count);
}

TEST(PeerMemory, MapsAnAllocationOnceAndFindsAnyPlaceInIt) {
  CountingDevice device;
  PeerMemory peers(device, 2);
  std::byte* first = at(peers, handle_of(4096, 1, 100), 1);
  EXPECT_EQ(at(peers, handle_of(4096, 1, 20), 2), first - 80);
  EXPECT_EQ(at(peers, handle_of(4096, 1, 500), 3), first + 400);
  EXPECT_EQ(device.imported, 1);
  at(peers, handle_of(4096, 1), 3, 1);  // of another peer
  EXPECT_EQ(device.imported, 2);
}

TEST(PeerMemory, MapsAnewWhatWasAllocatedAnewAndKeepsTheOldUntilItsCallsAreOver) {
  CountingDevice device;
  PeerMemory peers(device, 1);
  std::byte* before = at(peers, handle_of(4096, 1), 5);
  std::byte* after = at(peers, handle_of(4096, 2), 6);
  EXPECT_NE(before, after);
  EXPECT_EQ(device.live, 2);
  peers.calls_over(4);
  EXPECT_EQ(device.live, 2) << "call 5 may still run";
  peers.calls_over(5);
  expect_live(device, 1);
  EXPECT_EQ(at(peers, handle_of(4096, 2), 7), after);
}

// What a driver may have to unmap before it maps the new.
TEST(PeerMemory, LetsGoOfAllThatLayWhereAnAllocationIsNow) {
  CountingDevice device;
  PeerMemory peers(device, 1);
  at(peers, handle_of(4000, 1), 1);
  at(peers, handle_of(5000, 2), 1);
  at(peers, handle_of(7000, 3), 1);
  peers.calls_over(1);
  at(peers, handle_of(4500, 4), 2);  // up to 5500
  EXPECT_EQ(peers.mappings(), 2U);
  expect_live(device, 2);
  at(peers, handle_of(7000, 3), 2);
  EXPECT_EQ(device.imported, 4) << "what lies beside it stays";
}

TEST(PeerMemory, LetsGoOfAllThatThePeerCanHaveFreed) {
  CountingDevice device;
  PeerMemory peers(device, 2);
  for (uint64_t each = 1; each <= 3; ++each) at(peers, handle_of(each * 1000, each), 1);
  peers.calls_over(1);
  MemoryHandle handle = handle_of(3000, 3);
  handle.frees = 1;
  handle.freed = {1};
  at(peers, handle, 2);
  EXPECT_EQ(peers.mappings(), 2U);
  handle.frees = 11;  // more than it names
  at(peers, handle, 3);
  EXPECT_EQ(peers.mappings(), 1U);
  expect_live(device, 1);
}

// Other memory at the place is offered only then.
TEST(PeerMemory, SaysOfWhichCallsAllIsClosedThatWasHeardToBeFreed) {
  CountingDevice device;
  PeerMemory peers(device, 2);
  at(peers, handle_of(1000, 1), 1);
  peers.heard(1);
  EXPECT_EQ(peers.closed(), 1U) << "nothing was freed";
  MemoryHandle news = handle_of(9000, 2);
  news.frees = 1;
  news.freed = {1};
  const MemoryHandle* const told[] = {&news};
  device.has_closed = false;
  peers.hear(0, told);
  EXPECT_EQ(device.heard, 1U);
  EXPECT_EQ(peers.frees_heard(0), 1U);
  EXPECT_EQ(peers.frees_heard(1), 0U);
  peers.heard(2);
  EXPECT_EQ(peers.closed(), 1U);
  peers.calls_over(2);
  expect_live(device, 0);
  EXPECT_EQ(peers.closed(), 1U) << "another communicator may have it open";
  device.has_closed = true;
  EXPECT_EQ(peers.closed(), 2U);
}

TEST(PeerMemory, KeepsAllThatACallBringsHoweverMuchWasFreed) {
  CountingDevice device;
  PeerMemory peers(device, 1);
  MemoryHandle first = handle_of(1000, 1), second = handle_of(3000, 2);
  at(peers, first, 1);
  at(peers, second, 1);
  at(peers, handle_of(5000, 3), 1);
  peers.calls_over(1);
  first.frees = second.frees = first.freed.size() + 1;
  const MemoryHandle* const told[] = {&first, &second};
  peers.hear(0, told);
  EXPECT_EQ(peers.mappings(), 2U);
  at(peers, first, 2);
  at(peers, second, 2);
  EXPECT_EQ(device.imported, 3);
}

TEST(PeerMemory, TellsTheDeviceWhatItsReadersHaveClosed) {
  CountingDevice device;
  PeerMemory peers(device, 2);
  EXPECT_FALSE(peers.offer(nullptr, 1).ok());
  EXPECT_EQ(device.given_to, std::nullopt) << "to whoever";
  peers.set_readers({7, 9});
  EXPECT_FALSE(peers.offer(nullptr, 1).ok());
  EXPECT_EQ(device.given_to, (std::vector<pid_t>{7, 9}));
  peers.told(5, 3);
  peers.told(6, 4);  // waits for its turn
  peers.readers_closed(4);
  EXPECT_TRUE(device.closed.empty()) << "call 5 is the first that tells";
  peers.readers_closed(5);
  EXPECT_EQ(device.closed, (std::map<pid_t, uint64_t>{{7, 3}, {9, 3}}));
  peers.readers_closed(6);
  EXPECT_EQ(device.closed[7], 3U) << "told in the next call again";
  peers.told(7, 4);
  peers.readers_closed(7);
  EXPECT_EQ(device.closed, (std::map<pid_t, uint64_t>{{7, 4}, {9, 4}}));
}

// A call that fails before its ranks have met is heard by nobody, and the next one need not tell the same.
TEST(PeerMemory, CountsNoCallThatDoesNotTell) {
  CountingDevice device;
  PeerMemory peers(device, 2);
  peers.set_readers({7});
  peers.told(5, 3);
  peers.told(6, 0);
  peers.readers_closed(6);
  EXPECT_TRUE(device.closed.empty());
  peers.told(7, 3);
  peers.readers_closed(6);
  EXPECT_TRUE(device.closed.empty());
  peers.heard(7);
  peers.told(8, 0);  // what has been heard need not be told again
  peers.readers_closed(7);
  EXPECT_EQ(device.closed[7], 3U);
}

// A mapping keeps freed memory from being given to anybody else.
TEST(PeerMemory, LetsGoOfWhatThePeerHasFreedAndKeepsTheRest) {
  CountingDevice device;
  PeerMemory peers(device, 2);
  const MemoryHandle early = handle_of(1000, 1);
  for (uint64_t each = 1; each <= 4; ++each) at(peers, handle_of(each * 1000, each), 1);
  at(peers, handle_of(2000, 2), 1, 1);  // of another peer
  peers.calls_over(1);
  MemoryHandle handle = handle_of(4000, 4);
  handle.frees = 2;
  handle.freed = {2, 3};
  at(peers, handle, 2);
  EXPECT_EQ(peers.mappings(), 3U);
  expect_live(device, 3);
  for (int again = 0; again < 2; ++again) {
    at(peers, early, 3);  // scratch, say, which is told of as it was at the beginning
    at(peers, handle, 3);
  }
  EXPECT_EQ(device.imported, 5) << "what was not freed is not mapped again";
}

TEST(PeerMemory, LetsGoOfAllThatThePeerMayHaveFreedWhereAHandleDoesNotNameIt) {
  CountingDevice device;
  PeerMemory peers(device, 1);
  at(peers, handle_of(1000, 1), 1);
  at(peers, handle_of(2000, 2), 1);
  at(peers, handle_of(3000, 3), 1);
  peers.calls_over(1);
  MemoryHandle handle = handle_of(2000, 2);
  handle.frees = handle.freed.size() + 1;
  at(peers, handle, 2);
  EXPECT_EQ(peers.mappings(), 1U);
  at(peers, handle, 3);
  EXPECT_EQ(device.imported, 3) << "not what the handle is of";
}

// As a driver that waits for the GPU, where a stream waits for this call.
TEST(PeerMemory, UnmappingHoldsUpNoCall) {
  CountingDevice device;
  std::promise<void> gpu_is_idle;
  device.may_unmap = gpu_is_idle.get_future().share();
  {
    PeerMemory peers(device, 1);
    at(peers, handle_of(4096, 1), 1);
    at(peers, handle_of(4096, 2), 2);
    peers.calls_over(2);               // generation 1 goes, whose calls were not over before
    at(peers, handle_of(4096, 3), 3);  // and generation 2, whose calls are
    peers.calls_over(3);
    EXPECT_EQ(peers.mappings(), 1U);
    EXPECT_EQ(device.live, 3);
    gpu_is_idle.set_value();
    expect_live(device, 1);
  }
  EXPECT_EQ(device.live, 0);
}

TEST(PeerMemory, LetsTheLeastUsedGoWhereThereAreMany) {
  CountingDevice device;
  PeerMemory peers(device, 1, 2);
  at(peers, handle_of(1000, 1), 1);
  at(peers, handle_of(2000, 2), 2);
  at(peers, handle_of(1000, 1), 3);
  peers.calls_over(3);
  at(peers, handle_of(3000, 3), 4);
  EXPECT_EQ(peers.mappings(), 2U);
  at(peers, handle_of(1000, 1), 5);
  EXPECT_EQ(device.imported, 3) << "the one at 2000 gave way";
}

TEST(PeerMemory, NamesThePeerWhoseMemoryCannotBeMapped) {
  CountingDevice device;
  PeerMemory peers(device, 3);
  EXPECT_THAT(peers.address_of(2, handle_of(0, 1), 10, 1).status().message(),
              HasSubstr("memory of local rank 2: cannot be mapped"));
  EXPECT_THAT(peers.address_of(2, handle_of(4096, 1, 995), 10, 1).status().message(),
              HasSubstr("local rank 2 offers 10 bytes at 995 of an allocation of 1000"));
  EXPECT_EQ(peers.mappings(), 0U);
}

TEST(PeerMemory, IsTheSameForTheHostsWindows) {
  Device& host = device::host_device();
  void* window = *host.allocate(device::MemoryKind::shareable, 8192);
  PeerMemory peers(host, 1);
  const auto handle = peers.offer(static_cast<std::byte*>(window) + 100, 50);
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  EXPECT_EQ(*peers.address_of(0, *handle, 50, 1), static_cast<std::byte*>(window) + 100);
  EXPECT_TRUE(host.free(window).ok());
}

}  // namespace
}  // namespace epccl::transports
