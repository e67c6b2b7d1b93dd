#include <cuda.h>
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <thread>

#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

class CudaQueue : public ::testing::Test {
 protected:
  CudaQueue() {
    words_ = static_cast<SignalWord*>(
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    EXPECT_OK(gpu().make_words_visible(words_, bytes));
    fake_cuda_forget_calls();
  }
  ~CudaQueue() override {
    gpu().hide_words(words_);
    munmap(words_, bytes);
    EXPECT_EQ(fake_cuda_live("registered"), 0);
    EXPECT_EQ(fake_cuda_live("streams"), 0);
    EXPECT_EQ(fake_cuda_live("events"), 0);
    EXPECT_EQ(fake_cuda_live("allocations"), 0);
  }
  static std::unique_ptr<Queue> queue(QueueKind kind = QueueKind::copy_engine) {
    return take(gpu().make_queue(kind));
  }
  static constexpr uint64_t bytes = 8192;
  SignalWord* words_;
};

TEST_F(CudaQueue, DoesItsWorkInOrder) {
  const auto from = numbers(5000, 1);
  const GpuMemory first(5000), second(5000);
  std::vector<std::byte> to(5000);
  const auto mine = queue();
  const CopyWork in{first.data(), from.data(), 5000}, across{second.data(), first.data(), 5000},
      out{to.data(), second.data(), 5000};
  for (const CopyWork* work : {&in, &across, &out}) EXPECT_OK(mine->copy({work, 1}));
  EXPECT_OK(mine->synchronize());
  EXPECT_EQ(to, from);
  EXPECT_TRUE(*mine->idle());
}

TEST_F(CudaQueue, GivesAListOfCopiesToTheDriverAtOnce) {
  const auto from = numbers(64 * 100, 2);
  const GpuMemory memory(64 * 100);
  std::vector<CopyWork> works;
  for (size_t i = 0; i < 64; ++i) works.push_back({memory.data() + i * 100, from.data() + i * 100, 100});
  works.push_back({memory.data(), from.data(), 0});  // nothing is no copy
  const auto mine = queue();
  fake_cuda_forget_calls();
  EXPECT_OK(mine->copy(works));
  EXPECT_EQ(fake_cuda_calls("cuMemcpyBatchAsync_v2"), 1);
  EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync"), 0);
  EXPECT_OK(mine->synchronize());
  EXPECT_EQ(get(memory.data(), from.size()), from);
}

// Each copy of a list has its own hint.
TEST_F(CudaQueue, LeavesLargeCopiesThatMayUseComputeCoresToTheDriver) {
  constexpr uint64_t most = 128 << 10, larger = most + 1;
  const struct {
    uint64_t bytes;
    bool may_use_cores, is_hinted;
  } cases[] = {{larger, false, true}, {larger, true, false}, {larger, true, false},
               {most, true, true},    {100, false, true},    {larger, true, false}};
  const auto from = numbers(std::size(cases) * larger, 9);
  const GpuMemory there(from.size()), here(from.size());
  put(there.data(), from);
  std::vector<CopyWork> works;
  long hinted = 0, hinted_bytes = 0;
  for (const auto& each : cases) {
    const uint64_t at = works.size() * larger;
    works.push_back({here.data() + at, there.data() + at, each.bytes});
    works.back().may_use_cores = each.may_use_cores;
    hinted += each.is_hinted ? 1 : 0;
    hinted_bytes += each.is_hinted ? static_cast<long>(each.bytes) : 0;
  }
  const auto engine = queue();
  fake_cuda_forget_calls();
  EXPECT_OK(engine->copy(works));
  EXPECT_OK(engine->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuMemcpyBatchAsync_v2"), 1);
  EXPECT_EQ(fake_cuda_calls("copies beside compute"), hinted);
  EXPECT_EQ(fake_cuda_calls("bytes beside compute"), hinted_bytes);
  for (const CopyWork& work : works)
    EXPECT_EQ(get(work.destination, work.bytes),
              std::vector<std::byte>(from.data() + (work.destination - here.data()),
                                     from.data() + (work.destination - here.data()) + work.bytes));
  fake_cuda_forget_calls();
  EXPECT_OK(engine->copy({works.data() + 1, 1}));
  EXPECT_OK(engine->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync"), 1) << "one alone needs no list";
}

TEST_F(CudaQueue, CopiesRowsStridesApart) {
  for (const uint32_t rows : {3U, 100U}) {  // a list, and one copy with a pitch
    const auto from = numbers(rows * 30, rows);
    const GpuMemory there(rows * 40);
    put(there.data(), std::vector<std::byte>(rows * 40, std::byte{0xee}));
    CopyWork work{there.data(), from.data(), 20};
    work.rows = rows;
    work.source_stride = 30;
    work.destination_stride = 40;
    const auto mine = queue();
    fake_cuda_forget_calls();
    EXPECT_OK(mine->copy({&work, 1}));
    EXPECT_EQ(fake_cuda_calls("cuMemcpy2DAsync_v2"), rows == 100 ? 1 : 0);
    EXPECT_OK(mine->synchronize());
    const auto got = get(there.data(), rows * 40);
    for (size_t row = 0; row < rows; ++row)
      for (size_t i = 0; i < 40; ++i)
        ASSERT_EQ(got[row * 40 + i], i < 20 ? from[row * 30 + i] : std::byte{0xee}) << row << " " << i;
  }
}

TEST_F(CudaQueue, RowsWithoutGapsAreOneCopy) {
  const auto from = numbers(4000, 4);
  const GpuMemory there(4000);
  CopyWork work{there.data(), from.data(), 40};
  work.rows = 100;
  work.source_stride = work.destination_stride = 40;
  const auto mine = queue(QueueKind::compute);
  fake_cuda_forget_calls();
  EXPECT_OK(mine->copy({&work, 1}));
  EXPECT_OK(mine->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync"), 1);
  EXPECT_EQ(get(there.data(), 4000), from);
}

TEST_F(CudaQueue, WaitsForAWordAndPostsOne) {
  const auto from = numbers(100, 5);
  const GpuMemory there(100);
  const auto waits = queue(), posts = queue();
  const CopyWork work{there.data(), from.data(), 100};
  EXPECT_OK(waits->wait(words_[3], 7));
  EXPECT_OK(waits->copy({&work, 1}));
  EXPECT_OK(waits->post(words_[4], 9));
  EXPECT_FALSE(*waits->idle());
  EXPECT_OK(posts->post(words_[3], 6));
  EXPECT_OK(posts->synchronize());
  EXPECT_FALSE(*waits->idle());
  EXPECT_OK(posts->post(words_[3], 8));  // more than was asked for
  EXPECT_OK(waits->synchronize());
  EXPECT_EQ(words_[4].load(), 9U);
  EXPECT_EQ(get(there.data(), 100), from);
}

TEST_F(CudaQueue, IsLetThroughByAHostThatGivesUp) {
  const auto mine = queue();
  EXPECT_OK(mine->wait(words_[0], 7));
  words_[0].store(released);
  EXPECT_OK(mine->synchronize());
}

// A driver takes so many by one call; the last wait holds the post back like the first.
TEST_F(CudaQueue, PostsAfterAnyNumberOfWaits) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{254}, size_t{255}, size_t{700}}) {
    for (size_t i = 0; i <= count + 1; ++i) words_[i].store(0);
    SignalWord& another = words_[count + 1];
    std::vector<WordValue> waits;
    for (size_t i = 1; i <= count; ++i) waits.push_back({words_ + i, 3});
    const auto mine = queue();
    const std::vector<WordPost> posts{{&another, 6}, {&words_[0], 7}};
    EXPECT_OK(mine->post_after(waits, posts));
    for (size_t i = 1; i < count; ++i) words_[i].store(3);
    if (count > 0) {
      EXPECT_EQ(words_[0].load(), 0U) << count;
      EXPECT_EQ(another.load(), 0U) << count;
      words_[count].store(4);
    }
    EXPECT_OK(mine->synchronize());
    EXPECT_EQ(words_[0].load(), 7U) << count;
    EXPECT_EQ(another.load(), 6U) << count;
  }
}

// Without a kernel's code the double can only raise them.
TEST_F(CudaQueue, RaisesNearWordsTooByOneCallOfTheDriver) {
  const GpuMemory near(sizeof(SignalWord));
  const auto mine = queue();
  fake_cuda_forget_calls();
  const WordPost posts[] = {{&words_[0], 5, reinterpret_cast<SignalWord*>(near.data())}, {&words_[1], 6}};
  EXPECT_OK(mine->post_after({}, posts));
  EXPECT_EQ(fake_cuda_calls("cuStreamBatchMemOp_v2"), 1);
  EXPECT_OK(mine->synchronize());
  EXPECT_EQ(words_[0].load(), 5U);
  EXPECT_EQ(words_[1].load(), 6U);
  uint64_t raised = 0;
  const auto got = get(near.data(), sizeof raised);
  std::memcpy(&raised, got.data(), sizeof raised);
  EXPECT_EQ(raised, 5U);
}

TEST_F(CudaQueue, RefusesAWordThatWasNotMadeVisible) {
  SignalWord word{0};
  const auto mine = queue();
  EXPECT_THAT(mine->post(word, 1).message(), HasSubstr("was not made visible to GPU 0"));
  EXPECT_THAT(mine->wait(words_[bytes / 8], 1).message(), HasSubstr("was not made visible"));
}

TEST_F(CudaQueue, WordsMayBeMadeVisibleTwice) {
  EXPECT_OK(gpu().make_words_visible(words_, bytes));
  gpu().hide_words(words_);
  const auto mine = queue();
  EXPECT_OK(mine->post(words_[1], 1));
  EXPECT_OK(mine->synchronize());
}

TEST_F(CudaQueue, WaitsForAnEventOfAnotherQueue) {
  const auto first = queue(), second = queue();
  auto event = take(gpu().make_event());
  EXPECT_TRUE(*event->complete()) << "never recorded";
  EXPECT_OK(first->wait(words_[0], 1));
  EXPECT_OK(first->record(*event));
  EXPECT_OK(second->wait(*event));
  EXPECT_OK(second->post(words_[1], 5));
  EXPECT_FALSE(*event->complete());
  EXPECT_EQ(words_[1].load(), 0U);
  words_[0].store(1);
  EXPECT_OK(second->synchronize());
  EXPECT_TRUE(*event->complete());
  EXPECT_EQ(words_[1].load(), 5U);
}

TEST_F(CudaQueue, AnEventOfTheHostIsRefused) {
  const auto event = take(host_device().make_event());
  const auto mine = queue();
  EXPECT_EQ(mine->record(*event).code(), Code::invalid_usage);
  EXPECT_EQ(mine->wait(*event).code(), Code::invalid_usage);
}

TEST_F(CudaQueue, OnTheNullStreamCopiesOneByOne) {
  const auto from = numbers(300, 6);
  const GpuMemory there(300);
  std::array<CopyWork, 3> works;
  for (size_t i = 0; i < 3; ++i) works[i] = {there.data() + i * 100, from.data() + i * 100, 100};
  auto mine = take(gpu().borrow_stream(nullptr));
  fake_cuda_forget_calls();
  EXPECT_OK(mine->copy(works));
  EXPECT_OK(mine->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuMemcpyAsync"), 3);
  EXPECT_EQ(fake_cuda_calls("cuMemcpyBatchAsync_v2"), 0);
  EXPECT_EQ(get(there.data(), 300), from);
}

TEST_F(CudaQueue, NamesTheFunctionTheCodeAndTheGpu) {
  const auto from = numbers(200, 7);
  const GpuMemory there(200);
  const CopyWork work{there.data(), from.data(), 100};
  const auto mine = queue();
  fake_cuda_set("batch_error", 1);
  EXPECT_THAT(mine->copy({&work, 1}).message(),
              HasSubstr("cuMemcpyBatchAsync on GPU 0: CUDA_ERROR_INVALID_VALUE (1)"));
  fake_cuda_set("batch_error", 0);
  EXPECT_FALSE(mine->failure().ok());
}

TEST_F(CudaQueue, AfterAnErrorPostsGoOnAndCopiesDoNot) {
  const auto from = numbers(100, 8);
  const GpuMemory there(100);
  put(there.data(), std::vector<std::byte>(100, std::byte{1}));
  const auto mine = queue();
  const CopyWork good{there.data(), from.data(), 100};
  fake_cuda_set("batch_error", 1);
  EXPECT_FALSE(mine->copy({&good, 1}).ok());
  fake_cuda_set("batch_error", 0);
  EXPECT_FALSE(mine->copy({&good, 1}).ok());
  EXPECT_OK(mine->post(words_[2], 3));
  EXPECT_FALSE(mine->synchronize().ok());
  EXPECT_EQ(words_[2].load(), 3U);
}

TEST_F(CudaQueue, OfTheWrongContextIsRefused) {
  CUstream stream_of_nobody = reinterpret_cast<CUstream>(&words_);
  EXPECT_FALSE(gpu().borrow_stream(stream_of_nobody).ok());
}

TEST_F(CudaQueue, OfOneStreamAgainAndAgainLooksAtItsPriorityOnce) {
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  for (int call = 0; call < 3; ++call) EXPECT_OK(gpu().borrow_stream(stream).status());
  EXPECT_LE(fake_cuda_calls("cuStreamGetPriority"),
            1);  // none, where the last one before had the same handle
  cuStreamDestroy(stream);
  cuCtxPopCurrent(&context);
}

TEST_F(CudaQueue, ManyThreadsHaveQueuesAtOnce) {
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t)
    threads.emplace_back([this, t] {
      const auto mine = queue();
      for (uint64_t round = 1; round <= 20; ++round) {
        EXPECT_OK(mine->post(words_[t], round));
        EXPECT_OK(mine->wait(words_[(t + 1) % 4], round));
      }
      EXPECT_OK(mine->synchronize());
    });
  for (std::thread& thread : threads) thread.join();
}

// In a process of its own, which has not opened the GPU.
TEST(CudaHeldQueues, AreWarnedAboutOnceWhereTheyAreMoreThanTheGpuKeepsApart) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "2", 1);
  setenv("EPCCL_DEBUG", "WARN", 1);
  gpu();
  CUcontext context = nullptr;
  ASSERT_EQ(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuCtxPushCurrent(context), CUDA_SUCCESS);
  std::array<CUstream, 3> streams{};
  std::vector<std::unique_ptr<Queue>> users;
  for (CUstream& stream : streams) {
    ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    users.push_back(take(gpu().borrow_stream(stream)));
  }
  const auto said = [](const auto& hold) {
    testing::internal::CaptureStderr();
    const auto held = hold();
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said([&] { return std::array{users[0]->hold(), users[1]->hold(), users[1]->hold()}; }), "");
  const auto one = users[0]->hold(), again = users[0]->hold(), another = users[1]->hold();
  EXPECT_THAT(said([&] { return users[2]->hold(); }),
              HasSubstr("3 streams of GPU 0 wait for calls at once, and it has 2 hardware queues"));
  EXPECT_EQ(said([&] { return users[2]->hold(); }), "");
  users.clear();
  for (CUstream stream : streams) cuStreamDestroy(stream);
  cuCtxPopCurrent(&context);
}

}  // namespace
}  // namespace epccl::device::test
