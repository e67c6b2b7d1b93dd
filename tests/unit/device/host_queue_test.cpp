#include "device/host/host_queue.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <new>
#include <numeric>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "device/host/host_device.hpp"
#include "device/host/host_stream.hpp"

namespace epccl::device {
namespace {

std::vector<uint8_t> numbers(size_t count, uint8_t first) {
  std::vector<uint8_t> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

CopyWork copy_of(std::vector<uint8_t>& to, const std::vector<uint8_t>& from) {
  return {reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()),
          to.size()};
}

/// Two queues of the kinds asked for, on engines of their own.
struct Engines {
  explicit Engines(int count, double bytes_per_second = 0)
      : all(std::make_shared<HostEngines>(HostEngines::Limits{count, bytes_per_second, {}, {}})) {}
  HostQueue queue(QueueKind kind = QueueKind::copy_engine) { return {all, kind}; }
  std::shared_ptr<HostEngines> all;
};

TEST(HostQueue, DoesItsWorkInOrder) {
  Engines engines(2);
  HostQueue queue = engines.queue();
  const std::vector<uint8_t> from = numbers(5000, 1);
  std::vector<uint8_t> middle(from.size()), to(from.size());
  const std::array first{copy_of(middle, from)}, second{copy_of(to, middle)};
  ASSERT_TRUE(queue.copy(first).ok());
  ASSERT_TRUE(queue.copy(second).ok());
  ASSERT_TRUE(queue.synchronize().ok());
  EXPECT_EQ(to, from);
  EXPECT_TRUE(*queue.idle());
}

TEST(HostQueue, CopiesRowsStridesApart) {
  Engines engines(1);
  HostQueue queue = engines.queue();
  const std::vector<uint8_t> from = numbers(30, 1);
  std::vector<uint8_t> to(40, 0);
  CopyWork rows = copy_of(to, from);
  rows.bytes = 3;
  rows.rows = 4;
  rows.source_stride = 5;
  rows.destination_stride = 10;
  ASSERT_TRUE(queue.copy({&rows, 1}).ok());
  ASSERT_TRUE(queue.synchronize().ok());
  for (size_t row = 0; row < 4; ++row)
    for (size_t i = 0; i < 10; ++i)
      EXPECT_EQ(to[row * 10 + i], i < 3 ? from[row * 5 + i] : 0) << row << " " << i;
}

TEST(HostQueue, ThatWaitsHoldsNoEngine) {
  Engines engines(1);
  HostQueue waits = engines.queue(), posts = engines.queue();
  SignalWord first{0}, second{0};
  ASSERT_TRUE(waits.wait(first, 7).ok());
  ASSERT_TRUE(waits.post(second, 1).ok());
  EXPECT_FALSE(*waits.idle());
  ASSERT_TRUE(posts.post(first, 7).ok());
  ASSERT_TRUE(waits.synchronize().ok());
  EXPECT_EQ(second.load(), 1U);
}

TEST(HostQueue, GoesOnWhenAnotherProcessRaisesTheWord) {
  Engines engines(1);
  auto memory = the_host().allocate(MemoryKind::shareable, sizeof(SignalWord));
  ASSERT_TRUE(memory.ok());
  auto* word = new (*memory) SignalWord{0};
  HostQueue queue = engines.queue();
  ASSERT_TRUE(queue.wait(*word, 3).ok());
  const pid_t child = fork();
  if (child == 0) {
    word->store(4);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(queue.synchronize().ok());
  EXPECT_TRUE(the_host().free(*memory).ok());
}

TEST(HostQueue, WaitsForAPlaceInAnotherQueue) {
  Engines engines(2);
  HostQueue first = engines.queue(), second = engines.queue(QueueKind::compute);
  HostQueueEvent event;
  SignalWord gate{0};
  const std::vector<float> terms{1, 2, 3};
  std::vector<float> copied(3), sum(3), too(3);
  EXPECT_TRUE(*event.complete()) << "was never recorded";
  ASSERT_TRUE(first.wait(gate, 1).ok());
  const CopyWork copy{reinterpret_cast<std::byte*>(copied.data()),
                      reinterpret_cast<const std::byte*>(terms.data()), 12};
  ASSERT_TRUE(first.copy({&copy, 1}).ok());
  ASSERT_TRUE(first.record(event).ok());
  ASSERT_TRUE(second.wait(event).ok());
  const std::array sources{ReduceSource{reinterpret_cast<const std::byte*>(terms.data())},
                           ReduceSource{reinterpret_cast<const std::byte*>(copied.data())}};
  // One of the places is a source.
  const std::array also{reinterpret_cast<std::byte*>(copied.data()),
                        reinterpret_cast<std::byte*>(too.data())};
  auto* const to = reinterpret_cast<std::byte*>(sum.data());
  ASSERT_TRUE(second.reduce({{Element::float32, ReduceOp::sum}, sources, true, to, 3, also}).ok());
  EXPECT_FALSE(*event.complete());
  raise(gate, 1);
  ASSERT_TRUE(second.synchronize().ok());
  EXPECT_TRUE(*event.complete());
  for (const auto& result : {sum, copied, too}) EXPECT_EQ(result, (std::vector<float>{2, 4, 6}));
}

TEST(HostQueue, LetsPostsThroughButMovesNothingAfterARelease) {
  Engines engines(1);
  HostQueue queue = engines.queue();
  SignalWord word{0}, told{0};
  const std::vector<uint8_t> from = numbers(100, 1);
  std::vector<uint8_t> to(100, 0);
  ASSERT_TRUE(queue.wait(word, 5).ok());
  const CopyWork copy = copy_of(to, from);
  ASSERT_TRUE(queue.copy({&copy, 1}).ok());
  ASSERT_TRUE(queue.post(told, 9).ok());
  raise(word, released);
  const Status status = queue.synchronize();
  EXPECT_EQ(status.code(), Code::remote_error);
  EXPECT_EQ(told.load(), 9U);
  EXPECT_EQ(to, std::vector<uint8_t>(100, 0));
  EXPECT_FALSE(queue.failure().ok());
}

// Memory that was not to be had, say, by who is told of a post.
TEST(HostQueue, TakesWhatItsWorkThrowsForItsFailureAndGoesOn) {
  Engines engines(1);
  HostQueue queue = engines.queue(), other = engines.queue();
  SignalWord word{0}, behind{0};
  the_host().tell_of_posts(&word, sizeof word, [](const SignalWord&) { throw std::bad_alloc(); });
  ASSERT_TRUE(queue.post(word, 1).ok());
  ASSERT_TRUE(queue.post(behind, 1).ok());
  EXPECT_EQ(queue.synchronize().code(), Code::system_error);
  the_host().hide_words(&word);
  EXPECT_EQ(word.load(), 1U);
  EXPECT_EQ(behind.load(), 1U);
  ASSERT_TRUE(other.post(behind, 2).ok());
  EXPECT_TRUE(other.synchronize().ok());
  EXPECT_EQ(behind.load(), 2U);
}

TEST(HostQueue, NeverLowersAWord) {
  Engines engines(1);
  HostQueue queue = engines.queue();
  SignalWord word{10};
  ASSERT_TRUE(queue.post(word, 9).ok());
  ASSERT_TRUE(queue.synchronize().ok());
  EXPECT_EQ(word.load(), 10U);
}

TEST(HostQueue, OfACopyEngineRefusesToReduce) {
  Engines engines(1);
  HostQueue queue = engines.queue();
  EXPECT_EQ(queue.reduce({}).code(), Code::invalid_argument);
}

TEST(HostQueue, KeepsToItsBandwidth) {
  constexpr double rate = 1e9;
  Engines engines(1, rate);
  HostQueue queue = engines.queue();
  const std::vector<uint8_t> from = numbers(20 << 20, 1);
  std::vector<uint8_t> to(from.size());
  const CopyWork copy = copy_of(to, from);
  const double begin = now_seconds();
  ASSERT_TRUE(queue.copy({&copy, 1}).ok());
  ASSERT_TRUE(queue.synchronize().ok());
  EXPECT_GE(now_seconds() - begin, 0.9 * static_cast<double>(from.size()) / rate);
  EXPECT_EQ(to, from);
}

TEST(HostEngineSettings, ThatAreWrongAreRefusedByName) {
  const auto refused = [](const char* name, const char* value) {
    setenv(name, value, 1);
    const auto limits = HostEngines::configured();
    unsetenv(name);
    return !limits.ok() && limits.status().message().find(name) != std::string::npos;
  };
  EXPECT_TRUE(refused("EPCCL_HOST_ENGINES", "0"));
  EXPECT_TRUE(refused("EPCCL_HOST_ENGINE_GBPS", "-1"));
  EXPECT_TRUE(refused("EPCCL_HOST_ENGINE_GBPS", "fast"));
  EXPECT_TRUE(refused("EPCCL_HOST_ENGINE_CORES", "1;2"));
  EXPECT_TRUE(refused("EPCCL_HOST_REDUCTION_CORES", "one"));
  EXPECT_TRUE(refused("EPCCL_HOST_REDUCTION_CORES", "70000"));
  setenv("EPCCL_HOST_ENGINE_CORES", "0,3000", 1);
  setenv("EPCCL_HOST_REDUCTION_CORES", "1", 1);
  const auto limits = HostEngines::configured();
  unsetenv("EPCCL_HOST_ENGINE_CORES");
  unsetenv("EPCCL_HOST_REDUCTION_CORES");
  ASSERT_TRUE(limits.ok());
  EXPECT_EQ(limits->engine_cores, (std::vector<int>{0, 3000}));
  EXPECT_EQ(limits->reduction_cores, std::vector<int>{1});
}

TEST(HostEngineSettings, CoresOfWhichNoneIsThereAreToldOfAndIgnored) {
  setenv("EPCCL_HOST_ENGINE_CORES", "1023", 1);
  setenv("EPCCL_DEBUG", "WARN", 1);
  log::reload();
  const auto limits = HostEngines::configured();
  ASSERT_TRUE(limits.ok());
  ::testing::internal::CaptureStderr();
  { const HostEngines engines(*limits); }  // whose threads have looked when they have ended
  const std::string said = ::testing::internal::GetCapturedStderr();
  unsetenv("EPCCL_HOST_ENGINE_CORES");
  unsetenv("EPCCL_DEBUG");
  log::reload();
  EXPECT_NE(said.find("EPCCL_HOST_ENGINE_CORES=1023 has no core that this process may use"),
            std::string::npos)
      << said;
}

TEST(HostDevice, TellsOfPostsInMemoryAskedFor) {
  std::array<SignalWord, 4> words{};
  SignalWord elsewhere{0};
  std::atomic<int> told = 0;
  the_host().tell_of_posts(words.data(), sizeof words, [&](const SignalWord& word) {
    if (&word == &words[2]) ++told;
  });
  auto queue = the_host().make_queue(QueueKind::copy_engine);
  ASSERT_TRUE(queue.ok());
  ASSERT_TRUE((*queue)->post(words[2], 1).ok());
  ASSERT_TRUE((*queue)->post(elsewhere, 1).ok());
  ASSERT_TRUE((*queue)->synchronize().ok());
  the_host().hide_words(words.data());
  ASSERT_TRUE((*queue)->post(words[2], 2).ok());
  ASSERT_TRUE((*queue)->synchronize().ok());
  EXPECT_EQ(told, 1);
}

TEST(HostDevice, MapsWhatAnotherProcessAllocated) {
  auto memory = the_host().allocate(MemoryKind::shareable, 8192);
  ASSERT_TRUE(memory.ok());
  auto* bytes = static_cast<std::byte*>(*memory);
  const auto handle = the_host().export_memory(bytes + 100, 1000);
  ASSERT_TRUE(handle.ok());
  EXPECT_TRUE(the_host().info(bytes + 100)->shareable);
  EXPECT_EQ(the_host().info(bytes + 100)->base, reinterpret_cast<uint64_t>(bytes));
  const pid_t child = fork();
  if (child == 0) {
    auto mapped = the_host().import_memory(*handle);
    if (!mapped.ok() || (*mapped)->bytes() != 8092 || (*mapped)->data() == bytes + 100) _exit(1);
    (*mapped)->data()[3] = std::byte{77};
    _exit(0);
  }
  int how = -1;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  EXPECT_EQ(bytes[103], std::byte{77});
  auto own = the_host().import_memory(*handle);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ((*own)->data(), bytes + 100) << "of this process: as it is";
  own = Status();
  EXPECT_TRUE(the_host().free(*memory).ok());
}

TEST(HostDevice, CannotMapPlainMemoryOfAnotherProcess) {
  auto memory = the_host().allocate(MemoryKind::plain, 100);
  ASSERT_TRUE(memory.ok());
  EXPECT_FALSE(the_host().info(*memory)->shareable);
  auto handle = the_host().export_memory(*memory, 100);
  ASSERT_TRUE(handle.ok());
  handle->pid += 1;
  EXPECT_EQ(the_host().import_memory(*handle).status().code(), Code::invalid_argument);
  EXPECT_TRUE(the_host().free(*memory).ok());
  EXPECT_EQ(the_host().free(*memory).code(), Code::invalid_argument) << "twice";
}

TEST(HostDevice, SaysHowMuchMemoryItCouldNotGive) {
  const auto memory = the_host().allocate(MemoryKind::plain, uint64_t{1} << 60);
  EXPECT_EQ(memory.status().code(), Code::system_error);
  EXPECT_NE(memory.status().message().find("1152921504606846976"), std::string::npos);
}

TEST(BorrowedStream, IsTheStreamsOrder) {
  void* handle = create_stream();
  auto borrowed = the_host().borrow_stream(handle);
  auto queue = the_host().make_queue(QueueKind::copy_engine);
  ASSERT_TRUE(borrowed.ok() && queue.ok());
  std::atomic<bool> opened = false;
  find_stream(handle)->enqueue([&]() -> Status {
    opened.wait(false);
    return {};
  });
  SignalWord word{0};
  HostQueueEvent begin, end;
  ASSERT_TRUE((*borrowed)->record(begin).ok());
  ASSERT_TRUE((*queue)->wait(begin).ok());
  ASSERT_TRUE((*queue)->post(word, 1).ok());
  ASSERT_TRUE((*queue)->record(end).ok());
  ASSERT_TRUE((*borrowed)->wait(end).ok());
  EXPECT_FALSE(*begin.complete());
  EXPECT_EQ(word.load(), 0U);
  opened = true;
  opened.notify_all();
  ASSERT_TRUE((*borrowed)->synchronize().ok());
  EXPECT_EQ(word.load(), 1U);
  *borrowed = nullptr;
  EXPECT_TRUE(destroy_stream(handle));
}

TEST(BorrowedStream, WithoutAStreamWorksAtOnce) {
  auto borrowed = the_host().borrow_stream(nullptr);
  ASSERT_TRUE(borrowed.ok());
  const std::vector<uint8_t> from = numbers(64, 3);
  std::vector<uint8_t> to(64);
  const CopyWork copy = copy_of(to, from);
  ASSERT_TRUE((*borrowed)->copy({&copy, 1}).ok());
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace epccl::device
