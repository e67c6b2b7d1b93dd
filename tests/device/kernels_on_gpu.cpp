// The tests of the kernels (tests/unit/cuda_kernels) on a GPU instead of the host: the same tests, where all of the heap is memory
// that the GPU reads and writes. What a kernel writes behind a buffer is found when the buffer is given back. (A sanitizer sees one large
// allocation only.)
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include "../unit/cuda_kernels/launched.hpp"
#include "device/gpus.hpp"
#include "device/kernels/kernel_queue.hpp"

namespace epccl::device::kernels::testing {
namespace {

/// What comes after in this process would mean nothing: it ends, and tests/device/run goes on with the next test in another.
[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::fflush(nullptr);
  std::abort();
}

/// Pinned memory, handed out in pieces of 2^n bytes, which are kept for others of their size. Behind what was asked for each has a
/// guard, which must be whole when it is given back.
class Arena {
 public:
  void use(void* memory, size_t bytes) {
    begin_ = next_ = static_cast<std::byte*>(memory);
    end_ = begin_ + bytes;
  }
  /// Null before there is memory, and when there is none left.
  void* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t size = std::bit_ceil(std::max<size_t>(bytes + least_guard, 64)),
                 index = static_cast<size_t>(std::countr_zero(size));
    std::byte* piece = take_free(index);
    if (piece == nullptr) piece = take_new(size);
    if (piece == nullptr) return nullptr;
    header_of(piece) = {index, bytes};
    std::ranges::fill(guard_of(piece), guard);
    return piece;
  }
  bool give_back(void* memory) {
    auto* const piece = static_cast<std::byte*>(memory);
    if (begin_ == nullptr || piece < begin_ || piece >= end_) return false;
    const std::lock_guard lock(mutex_);
    if (!std::ranges::all_of(guard_of(piece), [](std::byte byte) { return byte == guard; }))
      give_up("memory", "something was written behind a buffer");
    const size_t index = header_of(piece).index;
    free_[index] = new (piece) Free{free_[index]};
    return true;
  }

 private:
  struct Free {
    Free* next;
  };
  struct Header {
    size_t index, bytes;
  };
  static constexpr size_t header = 64, least_guard = 32, most_guard = 4096;
  static constexpr std::byte guard{0xbd};

  static Header& header_of(std::byte* piece) { return *reinterpret_cast<Header*>(piece - sizeof(Header)); }
  static std::span<std::byte> guard_of(std::byte* piece) {
    const Header& known = header_of(piece);
    return {piece + known.bytes, std::min((size_t{1} << known.index) - known.bytes, most_guard)};
  }
  std::byte* take_free(size_t index) {
    Free* const first = free_[index];
    if (first != nullptr) free_[index] = first->next;
    return reinterpret_cast<std::byte*>(first);
  }
  std::byte* take_new(size_t size) {
    const size_t whole = size + header;
    if (next_ == nullptr || whole > static_cast<size_t>(end_ - next_)) return nullptr;
    return std::exchange(next_, next_ + whole) + header;
  }

  std::mutex mutex_;
  std::byte *begin_ = nullptr, *next_ = nullptr, *end_ = nullptr;
  std::array<Free*, 64> free_{};
};

Arena& arena() {
  // Never destroyed: there is memory of it to the end.
  alignas(Arena) static std::array<std::byte, sizeof(Arena)> place;
  static Arena* const made = new (place.data()) Arena;
  return *made;
}

constexpr size_t arena_bytes = size_t{1} << 30;
// Queues that no kernel runs on now: threads have one each while theirs does.
std::mutex queues_mutex;
std::vector<std::unique_ptr<Queue>> idle_queues;

Result<std::unique_ptr<Queue>> take_queue() {
  const std::lock_guard lock(queues_mutex);
  if (idle_queues.empty()) {
    EPCCL_ASSIGN(Device* const device, cuda_device(0));
    return device->make_queue(QueueKind::compute);
  }
  auto queue = std::move(idle_queues.back());
  idle_queues.pop_back();
  return queue;
}

void give_back(std::unique_ptr<Queue> queue) {
  const std::lock_guard lock(queues_mutex);
  idle_queues.push_back(std::move(queue));
}

Status open_gpu() {
  EPCCL_ASSIGN(Device* const device, cuda_device(0));
  if (bytes_of(Image::reduce).empty()) return {Code::device_error, "built without nvcc"};
  EPCCL_ASSIGN(void* const memory, device->allocate(MemoryKind::pinned, arena_bytes));
  arena().use(memory, arena_bytes);
  return {};
}

/// Opens the GPU before the first test; without one every test is skipped.
class Gpu : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    static const Status opened = open_gpu();
    if (!opened.ok()) GTEST_SKIP() << opened.message();
  }
  void OnTestProgramEnd(const ::testing::UnitTest&) override { idle_queues.clear(); }
};
[[maybe_unused]] const bool listens = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new Gpu);
  return true;
}();

template <class Parameters>
void run_on_gpu(const Launch<Parameters>& launch) {
  auto queue = take_queue();
  ASSERT_TRUE(queue.ok()) << queue.status().message();
  const Status queued = queue_kernel(**queue, launch), through = (*queue)->synchronize();
  // An error of the GPU ends its context, and with it all that this process could still do.
  for (const Status& status : {queued, through})
    if (status.code() == Code::device_error) give_up(launch.kernel.name, status.message().c_str());
  ASSERT_TRUE(queued.ok()) << queued.message();
  ASSERT_TRUE(through.ok()) << through.message();
  give_back(std::move(*queue));
}

}  // namespace

void* take_memory(size_t bytes) {
  void* const piece = arena().take(bytes);
  return piece != nullptr ? piece : std::malloc(bytes);
}
void give_memory_back(void* piece) {
  if (piece != nullptr && !arena().give_back(piece)) std::free(piece);
}

void run(const Launch<ReduceParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<MoveParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<SpreadParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<SumParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<LayoutParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<TermsParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<TokenStreamParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<WeightsParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<CountersParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<TopkParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<CopiesParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<SignalParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}
void run(const Launch<HostCallParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}

void run(const Launch<WordParameters>& launch, std::mt19937_64&) {
  run_on_gpu(launch);
}

}  // namespace epccl::device::kernels::testing

void* operator new(size_t bytes) {
  void* const piece = epccl::device::kernels::testing::take_memory(bytes);
  if (piece == nullptr) throw std::bad_alloc();
  return piece;
}
void* operator new[](size_t bytes) {
  return operator new(bytes);
}
void operator delete(void* piece) noexcept {
  epccl::device::kernels::testing::give_memory_back(piece);
}
void operator delete(void* piece, size_t) noexcept {
  epccl::device::kernels::testing::give_memory_back(piece);
}
void operator delete[](void* piece) noexcept {
  epccl::device::kernels::testing::give_memory_back(piece);
}
void operator delete[](void* piece, size_t) noexcept {
  epccl::device::kernels::testing::give_memory_back(piece);
}

// Without destructors of what lives as long as the process: all memory is the driver's, which may have let go of it by then.
int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const int result = RUN_ALL_TESTS();
  std::fflush(nullptr);
  std::_Exit(result);
}
