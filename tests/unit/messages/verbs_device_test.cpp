// Messages out of GPU memory and into it, over soft-RoCE: of the double of the CUDA driver, so that whoever touches it ends with a
// fault. See lent_memory.hpp for what takes the place of dma-buf.
#include <cuda.h>
#include <gmock/gmock.h>

#include <deque>

#include "fake_driver.hpp"
#include "lent_memory.hpp"
#include "soft_roce.hpp"

namespace epccl::transports {
namespace {

using device::MemoryKind;
using device::test::get;
using device::test::gpu;
using device::test::GpuMemory;
using device::test::numbers;
using device::test::put;
using ::testing::HasSubstr;

struct VerbsOfGpus : Verbs {
  static VerbsOptions options(int rank) {
    VerbsOptions options = Verbs::options(rank);
    options.library = &library_with_dma_buf();
    return options;
  }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    return create_with(rank, ranks, std::move(lookup), options(rank));
  }
  static Result<std::unique_ptr<Transport>> create_with(int rank, int ranks, AddressLookup lookup,
                                                        VerbsOptions options) {
    EPCCL_ASSIGN(const net::Endpoint loopback, net::local_address("lo"));
    return VerbsTransport::create(rank, ranks, loopback, std::move(lookup), std::move(options));
  }
};

struct VerbsOfGpusWithFailover : VerbsOfGpus {
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    VerbsOptions options = VerbsOfGpus::options(rank);
    options.failover = true;
    return create_with(rank, ranks, std::move(lookup), std::move(options));
  }
};

struct VerbsByAddress : VerbsOfGpus {
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    VerbsOptions options = VerbsOfGpus::options(rank);
    options.library = &library_with_module();
    return create_with(rank, ranks, std::move(lookup), std::move(options));
  }
};

/// Where a message begins or ends.
enum class In : uint8_t { host, gpu };

struct Moved {
  int from, to;
  MessageKey key;
  size_t bytes, room;
  In source, destination;
  size_t sent_at = 0, received_at = 0;  // in the ranks' memory
  Completion sending{}, receiving{};
  bool finished() const { return sending.finished() && receiving.finished(); }
};

/// A rank's memory of one kind. What is received lies in poison; the memory is looked at when all has come.
class Arena {
 public:
  Arena(In in, size_t bytes) : host_(bytes, poison) {
    if (in == In::gpu) gpu_ = std::make_unique<GpuMemory>(bytes);
  }
  /// Room for a message, at an odd place.
  size_t take(size_t bytes) {
    const size_t at = used_;
    used_ += bytes + gap;
    EXPECT_LE(used_, host_.size());
    return at;
  }
  void write(size_t at, const std::vector<uint8_t>& bytes) {
    std::transform(bytes.begin(), bytes.end(), host_.begin() + static_cast<ptrdiff_t>(at),
                   [](uint8_t byte) { return std::byte{byte}; });
  }
  void ready() {
    if (gpu_ != nullptr) put(gpu_->data(), host_);
  }
  void read_back() {
    if (gpu_ != nullptr) host_ = get(gpu_->data(), host_.size());
  }
  void free() { gpu_->free_now(); }
  std::byte* data() { return gpu_ != nullptr ? gpu_->data() : host_.data(); }
  size_t bytes() const { return host_.size(); }
  const std::byte* seen(size_t at) const { return host_.data() + at; }

  static constexpr size_t gap = 37;
  static constexpr auto poison = std::byte{0xee};

 private:
  std::vector<std::byte> host_;
  std::unique_ptr<GpuMemory> gpu_;
  size_t used_ = 5;
};

/// Messages between two ranks that have memory of both kinds.
template <typename Maker>
class Traffic {
 public:
  explicit Traffic(size_t bytes) : bytes_(bytes) {
    for (int i = 0; i < 4; ++i) arenas_.emplace_back(i % 2 == 0 ? In::host : In::gpu, bytes);
    fabric_.emplace(2);
  }
  Fabric<Maker>& fabric() { return *fabric_; }
  std::deque<Moved>& all() { return all_; }
  Arena& arena(int rank, In in) { return arenas_[static_cast<size_t>(2 * rank + (in == In::gpu ? 1 : 0))]; }

  Moved& add(int from, size_t bytes, In source, In destination, size_t spare = 0) {
    Moved& it =
        all_.emplace_back(Moved{from, 1 - from, all_.size(), bytes, bytes + spare, source, destination});
    it.sent_at = arena(from, source).take(bytes);
    it.received_at = arena(it.to, destination).take(it.room);
    arena(from, source).write(it.sent_at, pattern(from, it.to, it.key, bytes));
    return it;
  }
  /// Before the first message is sent or received.
  void ready() {
    for (Arena& arena : arenas_) arena.ready();
  }
  std::shared_ptr<const DeviceMemory> memory(int rank) {
    auto found = (*fabric_)[rank].device_memory(gpu(), arena(rank, In::gpu).data(), bytes_);
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? std::move(found).value() : nullptr;
  }
  void send(Moved& it) {
    auto& transport = (*fabric_)[it.from];
    const std::byte* at = arena(it.from, it.source).data() + it.sent_at;
    const Status status = it.source == In::host ? transport.send(it.to, it.key, at, it.bytes, it.sending)
                                                : transport.send_from(*memory(it.from), it.to, it.key, at,
                                                                      it.bytes, it.sending);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void recv(Moved& it) {
    auto& transport = (*fabric_)[it.to];
    std::byte* at = arena(it.to, it.destination).data() + it.received_at;
    const Status status =
        it.destination == In::host
            ? transport.recv(it.from, it.key, at, it.room, it.receiving)
            : transport.recv_into(*memory(it.to), it.from, it.key, at, it.room, it.receiving);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void finish_and_expect_all_arrived() {
    ASSERT_TRUE(fabric_->drive_until([&] {
      return std::all_of(all_.begin(), all_.end(), [](const Moved& it) { return it.finished(); });
    }));
    for (Arena& arena : arenas_) arena.read_back();
    for (const Moved& it : all_) expect_arrived(it);
  }

 private:
  void expect_arrived(const Moved& it) {
    SCOPED_TRACE(fmt::format("message {} of {} bytes from {} to {} memory", it.key, it.bytes,
                             it.source == In::gpu ? "GPU" : "host",
                             it.destination == In::gpu ? "GPU" : "host"));
    ASSERT_EQ(it.sending.state, Completion::State::done) << it.sending.status.message();
    ASSERT_EQ(it.receiving.state, Completion::State::done) << it.receiving.status.message();
    EXPECT_EQ(it.receiving.bytes, it.bytes);
    const auto sent = pattern(it.from, it.to, it.key, it.bytes);
    const std::byte* got = arena(it.to, it.destination).seen(it.received_at);
    EXPECT_TRUE(it.bytes == 0 || std::memcmp(got, sent.data(), it.bytes) == 0);
    EXPECT_TRUE(std::all_of(got + it.bytes, got + it.room + Arena::gap, [](std::byte byte) {
      return byte == Arena::poison;
    })) << "written beyond its end";
  }

  const size_t bytes_;
  std::deque<Arena> arenas_;
  std::deque<Moved> all_;  // before the fabric: what is pending when it ends fails then
  std::optional<Fabric<Maker>> fabric_;
};

class VerbsDevice : public OnSoftRoce {
 protected:
  void SetUp() override {
    OnSoftRoce::SetUp();
    fake_cuda_forget_calls();
  }
};

TEST_F(VerbsDevice, MovesFromGpuToGpuWhateverTheSizeAndNeverByCopy) {
  Traffic<VerbsOfGpus> traffic(4 << 20);
  for (const size_t bytes : {1, 100, 8192, 8193, 300000, 1 << 20})
    for (const int from : {0, 1}) traffic.add(from, bytes, In::gpu, In::gpu);
  traffic.ready();
  for (Moved& it : traffic.all()) traffic.recv(it);
  for (Moved& it : traffic.all()) traffic.send(it);
  traffic.finish_and_expect_all_arrived();
  // Those of 300000 bytes and of 1 MiB are on both rails.
  for (const int rank : {0, 1}) {
    EXPECT_EQ(traffic.fabric()[rank].work().signals, 8u);
    EXPECT_EQ(traffic.fabric()[rank].work().registrations, 1u);
  }
  EXPECT_GE(fake_cuda_calls("cuFlushGPUDirectRDMAWrites"), 12) << "work that follows may not see it";
}

TEST_F(VerbsDevice, MovesBetweenGpuAndHostWhicheverEndIsWhichAndComesFirst) {
  Traffic<VerbsOfGpus> traffic(4 << 20);
  for (int once_received_first_once_sent = 0; once_received_first_once_sent < 2;
       ++once_received_first_once_sent)
    for (const size_t bytes : {0, 1, 5000, 8192, 20000, 300000})
      for (const size_t spare : {0, 1000}) {
        traffic.add(0, bytes, In::gpu, In::host, spare);
        traffic.add(0, bytes, In::host, In::gpu, spare);
        traffic.add(1, bytes, In::gpu, In::gpu, spare);
      }
  traffic.ready();
  const auto half = traffic.all().begin() + static_cast<ptrdiff_t>(traffic.all().size() / 2);
  for (auto it = traffic.all().begin(); it != half; ++it) traffic.recv(*it);
  for (Moved& it : traffic.all()) traffic.send(it);
  traffic.fabric().settle();
  for (auto it = half; it != traffic.all().end(); ++it) traffic.recv(*it);
  traffic.finish_and_expect_all_arrived();
}

TEST_F(VerbsDevice, ASmallMessageFromHostMemoryNeedsItsSenderNoMoreOnceItIsSent) {
  Traffic<VerbsOfGpus> traffic(1 << 20);
  Moved& first = traffic.add(0, 100, In::host, In::gpu);  // connects
  Moved& second = traffic.add(0, 4000, In::host, In::gpu);
  traffic.ready();
  traffic.recv(first);
  traffic.send(first);
  ASSERT_TRUE(traffic.fabric().drive_until([&] { return first.finished(); }));
  traffic.recv(second);
  traffic.fabric().settle();  // what the receiver has to say of it the sender has heard
  traffic.send(second);
  ASSERT_EQ(second.sending.state, Completion::State::done);
  const double deadline = now_seconds() + patience_seconds;
  while (!second.receiving.finished() && now_seconds() < deadline) traffic.fabric()[1].progress();
  ASSERT_TRUE(second.receiving.finished()) << "it waits for the sender to look again";
  traffic.finish_and_expect_all_arrived();
}

/// What comes in random order, of random sizes and kinds of memory.
template <typename Maker>
void fill(Traffic<Maker>& traffic, std::mt19937_64& random, size_t count) {
  const auto either = [&] { return random() % 2 == 0 ? In::host : In::gpu; };
  for (size_t i = 0; i < count; ++i)
    traffic.add(static_cast<int>(random() % 2), random() % (size_t{1} << (random() % 20)), either(), either(),
                random() % 3 == 0 ? random() % 10000 : 0);
  traffic.ready();
}

TEST_F(VerbsDevice, MovesAnythingInAnyOrder) {
  auto random = seeded_random();
  constexpr size_t count = 60;
  Traffic<VerbsOfGpus> traffic(8 << 20);
  fill(traffic, random, count);
  std::vector<std::pair<Moved*, bool>> steps;  // the message, and whether it is sent
  for (Moved& it : traffic.all()) {
    steps.emplace_back(&it, true);
    steps.emplace_back(&it, false);
  }
  std::shuffle(steps.begin(), steps.end(), random);
  for (const auto& [it, is_sent] : steps) {
    if (is_sent) traffic.send(*it);
    if (!is_sent) traffic.recv(*it);
    if (random() % 4 == 0) traffic.fabric().progress();
  }
  traffic.finish_and_expect_all_arrived();
}

TEST_F(VerbsDevice, GoesOverTheOtherRailWhenOneFailsMeanwhile) {
  auto random = seeded_random();
  Traffic<VerbsOfGpusWithFailover> traffic(12 << 20);
  // Large enough to be on both rails when one is pulled.
  for (int i = 0; i < 6; ++i) traffic.add(i % 2, 1 << 20, In::gpu, In::gpu);
  fill(traffic, random, 30);
  for (Moved& it : traffic.all()) traffic.recv(it);
  for (size_t i = 0; i < 2; ++i) traffic.send(traffic.all()[i]);
  ASSERT_TRUE(traffic.fabric().drive_until(
      [&] { return traffic.all()[0].finished() && traffic.all()[1].finished(); }));
  link("v0r1", "down");
  for (size_t i = 2; i < traffic.all().size(); ++i) traffic.send(traffic.all()[i]);
  traffic.finish_and_expect_all_arrived();
  EXPECT_TRUE(traffic.fabric().drive_until([&] {
    return traffic.fabric()[0].work().rails_lost == 1 && traffic.fabric()[1].work().rails_lost == 1;
  }));
  EXPECT_GT(traffic.fabric()[0].work().moved + traffic.fabric()[1].work().moved, 0u);
}

TEST_F(VerbsDevice, GoesThroughTheModuleThatKnowsAddressesWhereThereIsNoDmaBuf) {
  Traffic<VerbsByAddress> traffic(1 << 20);
  for (const size_t bytes : {100, 300000}) traffic.add(0, bytes, In::gpu, In::gpu);
  traffic.ready();
  for (Moved& it : traffic.all()) {
    traffic.send(it);
    traffic.recv(it);
  }
  traffic.finish_and_expect_all_arrived();
}

TEST_F(VerbsDevice, EndsAllThatIsPendingWhenCancelledAndLeavesTheMemoryAlone) {
  Traffic<VerbsOfGpus> traffic(1 << 20);
  for (const size_t bytes : {8000, 100, 50000})
    for (const In source : {In::host, In::gpu})
      for (int i = 0; i < 4; ++i) traffic.add(0, bytes, source, In::gpu);
  traffic.ready();
  for (Moved& it : traffic.all()) traffic.recv(it);
  fake_cuda_set("copy_pause", 2000);
  for (Moved& it : traffic.all()) traffic.send(it);
  // Somewhere between: a few have come, of a few the GPU's copies are under way.
  ASSERT_TRUE(traffic.fabric().drive_until([&] {
    return std::any_of(traffic.all().begin(), traffic.all().end(),
                       [](const Moved& it) { return it.receiving.finished(); });
  }));
  traffic.fabric()[1].cancel_all();
  for (const Moved& it : traffic.all()) EXPECT_TRUE(it.receiving.finished());
  traffic.arena(1, In::gpu).free();
  traffic.fabric().settle();
  EXPECT_TRUE(traffic.fabric().drive_until([&] {
    return std::all_of(traffic.all().begin(), traffic.all().end(),
                       [](const Moved& it) { return it.finished(); });
  }));
  fake_cuda_set("copy_pause", 0);
  // A copy into freed memory would have ended the GPU's context.
  const GpuMemory later(100);
  put(later.data(), numbers(100, 1));
}

/// One message of a whole allocation.
template <typename AnyFabric>
void move(AnyFabric& fabric, const GpuMemory& from, const GpuMemory& to, unsigned seed) {
  const auto bytes = numbers(from.bytes(), seed);
  put(from.data(), bytes);
  auto source = fabric[0].device_memory(gpu(), from.data(), from.bytes());
  auto destination = fabric[1].device_memory(gpu(), to.data(), to.bytes());
  ASSERT_TRUE(source.ok() && destination.ok());
  Completion sending, receiving;
  EXPECT_TRUE(fabric[1].recv_into(**destination, 0, seed, to.data(), to.bytes(), receiving).ok());
  EXPECT_TRUE(fabric[0].send_from(**source, 1, seed, from.data(), from.bytes(), sending).ok());
  ASSERT_TRUE(fabric.drive_until([&] { return sending.finished() && receiving.finished(); }));
  EXPECT_EQ(get(to.data(), to.bytes()), bytes);
}

TEST_F(VerbsDevice, MemoryThatWasFreedAndMadeAgainAtTheSameAddressIsRegisteredAnew) {
  Fabric<VerbsOfGpus> fabric(2);
  fake_cuda_set("reuse", 1);
  const GpuMemory from(300000);
  std::byte* was = nullptr;
  for (unsigned round = 0; round < 3; ++round) {
    const GpuMemory to(300000);
    ASSERT_TRUE(was == nullptr || was == to.data()) << "it lies elsewhere now: the test shows nothing";
    was = to.data();
    move(fabric, from, to, round);
    move(fabric, from, to, 10 + round);
    EXPECT_EQ(fabric[0].work().registrations, 1u);
    EXPECT_EQ(fabric[1].work().registrations, round + 1);
  }
  fake_cuda_set("reuse", 0);
  EXPECT_TRUE(fabric.drive_until([&] { return fabric[1].kept_registrations() == 0; })) << "it stays pinned";
}

class VerbsDeviceRefused : public VerbsDevice {
 protected:
  static std::string told(const verbs::Library& library, verbs::LentBy ways) {
    const GpuMemory memory(1 << 20);
    const auto loopback = net::local_address("lo");
    VerbsOptions options = Verbs::options(0);
    options.library = &library;
    options.device_memory = ways;
    const auto lookup = [](int) -> Result<std::vector<std::byte>> {
      return error(Code::internal_error, "unused");
    };
    auto transport = VerbsTransport::create(0, 2, *loopback, lookup, options);
    EXPECT_TRUE(transport.ok()) << transport.status().message();
    const auto again = (*transport)->device_memory(gpu(), memory.data(), 100);
    const auto refused = (*transport)->device_memory(gpu(), memory.data(), memory.bytes());
    EXPECT_FALSE(refused.ok());
    EXPECT_EQ(again.status().message(), refused.status().message());
    EXPECT_LE((*transport)->work().registrations, 1u) << "what was refused is not tried again at once";
    return refused.status().message();
  }
};

TEST_F(VerbsDeviceRefused, ByADeviceThatKnowsNeitherWaySaysBothReasons) {
  const verbs::Library& real = **verbs::Library::get();
  const std::string said = told(real, verbs::LentBy::either);
  EXPECT_THAT(said, HasSubstr("by dma-buf: registering 1048576 bytes with n0r0 port 1: "));
  EXPECT_THAT(said, HasSubstr("by address (nvidia_peermem): registering 1048576 bytes with n0r0 port 1: "));
  EXPECT_THAT(told(real, verbs::LentBy::descriptor), HasSubstr("EPCCL_GPU_DIRECT=dmabuf"));
  EXPECT_THAT(told(real, verbs::LentBy::address), HasSubstr("EPCCL_GPU_DIRECT=peermem"));
  EXPECT_EQ(told(real, verbs::LentBy::nothing), "EPCCL_GPU_DIRECT=0");
  verbs::Library old = real;
  old.reg_dmabuf_mr = nullptr;
  EXPECT_THAT(told(old, verbs::LentBy::either), HasSubstr("libibverbs lacks ibv_reg_dmabuf_mr"));
}

int registered_by_half = 0;
ibv_mr* refuse_the_second(ibv_pd* domain, uint64_t offset, size_t bytes, uint64_t address, int fd,
                          int access) {
  errno = ENOMEM;
  return ++registered_by_half % 2 == 0
             ? nullptr
             : fake_verbs::register_descriptor(domain, offset, bytes, address, fd, access);
}

TEST_F(VerbsDeviceRefused, ByOneOfTwoRailsIsRefusedByBothAndNamesThat) {
  verbs::Library half = library_with_dma_buf();
  half.reg_dmabuf_mr = refuse_the_second;
  EXPECT_THAT(told(half, verbs::LentBy::descriptor), HasSubstr("n0r1 port 1: "));
}

// ---- what needs no RDMA device ------------------------------------------------------------------------------------------

class VerbsDeviceRegistrations : public testing::Test {
 protected:
  Result<std::shared_ptr<const verbs::DeviceRegion>> region(const void* data, uint64_t bytes) {
    return registrations.get({}, gpu(), data, bytes, made);
  }
  verbs::DeviceRegistrations registrations{verbs::LentBy::either};
  uint64_t made = 0;
};

TEST_F(VerbsDeviceRegistrations, AreOfWholeAllocationsAndLookedUpByTheirParts) {
  const GpuMemory a(100000), b(100000);
  for (int round = 0; round < 3; ++round)
    for (const GpuMemory* memory : {&a, &b}) {
      EXPECT_TRUE(region(memory->data(), 10).ok());
      EXPECT_TRUE(region(memory->data() + 99990, 10).ok());
    }
  EXPECT_EQ(made, 2u);
  EXPECT_EQ(registrations.kept(), 2u);
}

TEST_F(VerbsDeviceRegistrations, HoldMessagesToWhatWasAskedFor) {
  const GpuMemory memory(100000);
  const auto found = region(memory.data() + 100, 1000);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE((*found)->check(memory.data() + 100, 1000).ok());
  EXPECT_TRUE((*found)->check(memory.data() + 1100, 0).ok());
  EXPECT_FALSE((*found)->check(memory.data() + 99, 1).ok());
  EXPECT_FALSE((*found)->check(memory.data() + 101, 1000).ok());
  EXPECT_FALSE((*found)->check(memory.data() + 100, ~uint64_t{0}).ok());
}

TEST_F(VerbsDeviceRegistrations, AreGivenUpWhenTheMemoryIsFreed) {
  GpuMemory ours(100000);
  ASSERT_TRUE(region(ours.data(), 1).ok());
  registrations.tidy();
  EXPECT_EQ(registrations.kept(), 1u);
  ours.free_now();
  registrations.tidy();
  EXPECT_EQ(registrations.kept(), 0u);
}

TEST_F(VerbsDeviceRegistrations, OfMemoryThatTheProgramFreesItselfAreGivenUpInTheNextCalls) {
  const GpuMemory ours(100);
  CUcontext context = nullptr;
  CUdeviceptr theirs = 0;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  ASSERT_EQ(cuMemAlloc(&theirs, 5000), CUDA_SUCCESS);
  ASSERT_TRUE(region(reinterpret_cast<void*>(theirs), 5000).ok());
  ASSERT_EQ(cuMemFree(theirs), CUDA_SUCCESS);
  cuCtxPopCurrent(&context);
  for (int call = 0; call < 3; ++call) ASSERT_TRUE(region(ours.data(), 1).ok());
  EXPECT_EQ(registrations.kept(), 1u);
  EXPECT_FALSE(region(reinterpret_cast<void*>(theirs), 5000).ok());
}

TEST_F(VerbsDeviceRegistrations, AreNotTakenForThoseOfTheMemoryThatWasThereBefore) {
  // Of several, so that it is not by chance the one that the call looks at besides.
  std::deque<GpuMemory> others;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(region(others.emplace_back(100).data(), 1).ok());
  fake_cuda_set("reuse", 1);
  std::byte* was = nullptr;
  for (uint64_t round = 1; round <= 5; ++round) {
    const GpuMemory memory(20000);
    ASSERT_TRUE(was == nullptr || was == memory.data()) << "it lies elsewhere now: the test shows nothing";
    was = memory.data();
    ASSERT_TRUE(region(memory.data(), 1).ok());
    EXPECT_EQ(made, 3 + round);
  }
  fake_cuda_set("reuse", 0);
}

TEST_F(VerbsDeviceRegistrations, OfTooManyAllocationsTheOnesNotUsedLongestGo) {
  std::deque<GpuMemory> many;
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(region(many.emplace_back(100).data(), 100).ok());
  EXPECT_EQ(registrations.kept(), 256u);
  EXPECT_EQ(made, 300u);
  ASSERT_TRUE(region(many.back().data(), 100).ok());
  EXPECT_EQ(made, 300u);
  ASSERT_TRUE(region(many.front().data(), 100).ok());
  EXPECT_EQ(made, 301u);
}

}  // namespace
}  // namespace epccl::transports
