#include <cuda.h>
#include <gmock/gmock.h>

#include <chrono>
#include <future>
#include <memory>
#include <set>
#include <thread>

#include "../base/environment.hpp"
#include "device/cuda/allocation.hpp"
#include "fake_driver.hpp"
#include "gpu.hpp"
#include "peer.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

TEST(CudaMemory, OfEveryKindHoldsBytes) {
  for (const MemoryKind kind : {MemoryKind::plain, MemoryKind::shareable, MemoryKind::pinned}) {
    const GpuMemory memory(100'000, kind);
    const auto bytes = numbers(100'000, 1);
    put(memory.data(), bytes);
    EXPECT_EQ(get(memory.data(), bytes.size()), bytes);
  }
  EXPECT_EQ(fake_cuda_live("allocations"), 0);
}

// Of the double: a real one is not, either.
TEST(CudaMemory, OfNoKindIsZeroWhenItIsGivenOut) {
  for (const MemoryKind kind : {MemoryKind::plain, MemoryKind::shareable, MemoryKind::pinned}) {
    const GpuMemory memory(1000, kind);
    for (const std::byte each : get(memory.data(), 1000)) ASSERT_NE(each, std::byte{0});
  }
}

TEST(CudaMemory, SaysWhoseAnAddressIs) {
  const GpuMemory plain(5000), shareable(5000, MemoryKind::shareable), pinned(5000, MemoryKind::pinned);
  const std::vector<std::byte> host(10);
  for (const GpuMemory* memory : {&plain, &shareable}) {
    const auto info = gpu().info(memory->data() + 4999);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->device, DeviceKind::cuda);
    EXPECT_EQ(info->ordinal, 0);
    EXPECT_EQ(info->base, reinterpret_cast<uint64_t>(memory->data()));
    EXPECT_EQ(info->size, 5000U);
    EXPECT_EQ(info->shareable, memory == &shareable);
    EXPECT_EQ(cuda_memory_at(memory->data())->ordinal, 0);
  }
  EXPECT_FALSE(gpu().info(pinned.data()));
  EXPECT_FALSE(gpu().info(host.data()));
  EXPECT_FALSE(cuda_memory_at(pinned.data()));
  EXPECT_FALSE(cuda_memory_at(host.data()));
  EXPECT_FALSE(cuda_memory_at(nullptr));
}

TEST(CudaMemory, OfAnotherGpuIsNotThisOnes) {
  const GpuMemory other(1000, MemoryKind::plain, gpu(1));
  EXPECT_FALSE(gpu(0).info(other.data()));
  EXPECT_EQ(gpu(1).info(other.data())->ordinal, 1);
  EXPECT_EQ(cuda_memory_at(other.data())->ordinal, 1);
  EXPECT_THAT(gpu(0).export_memory(other.data(), 10).status().message(), HasSubstr("is not memory of GPU 0"));
}

TEST(CudaMemory, FreedTwiceOrOfOthersIsRefused) {
  GpuMemory memory(100);
  std::byte* const address = memory.data();
  EXPECT_EQ(gpu().free(address + 1).code(), Code::invalid_argument);
  memory.free_now();
  EXPECT_EQ(gpu().free(address).code(), Code::invalid_argument);
  EXPECT_FALSE(gpu().allocate(MemoryKind::plain, 0).ok());
}

TEST(CudaMemory, ThatRunsOutNamesSizesAndTheGpuGoesOn) {
  fake_cuda_set("memory", 8 << 20);
  for (const MemoryKind kind : {MemoryKind::plain, MemoryKind::shareable}) {
    const auto tried = gpu().allocate(kind, 16 << 20);
    ASSERT_FALSE(tried.ok());
    EXPECT_THAT(tried.status().message(),
                HasSubstr("allocating 16777216 bytes where 8388608 of 8388608 are free"));
    EXPECT_THAT(tried.status().message(), HasSubstr("on GPU 0: CUDA_ERROR_OUT_OF_MEMORY (2)"));
    const GpuMemory smaller(4 << 20, kind);
  }
  fake_cuda_set("memory", 4L << 30);
  EXPECT_EQ(fake_cuda_live("allocations"), 0);
}

TEST(CudaMemory, ThatRunsOutForAMomentIsSharedByDescriptorAgainLater) {
  const auto form = [] {
    const GpuMemory memory(1000, MemoryKind::shareable);
    return gpu().export_memory(memory.data(), 1)->form;
  };
  for (const char* step : {"create_error", "map_error"}) {
    fake_cuda_set(step, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(form(), static_cast<uint8_t>(cuda::HandleForm::cuda_ipc));
    fake_cuda_set(step, 0);
    EXPECT_EQ(form(), static_cast<uint8_t>(cuda::HandleForm::descriptor)) << step;
  }
}

TEST(CudaMemory, TellsWhichWasFreedBefore) {
  const GpuMemory memory(1000, MemoryKind::shareable);
  const auto handle_of = [](const GpuMemory& of) { return take(gpu().export_memory(of.data(), 1)); };
  const uint64_t before = handle_of(memory).frees;
  GpuMemory gone(1000, MemoryKind::shareable), nobody_elses(1000);
  const MemoryHandle early = handle_of(gone);
  gone.free_now();
  nobody_elses.free_now();
  const MemoryHandle late = handle_of(memory);
  EXPECT_EQ(late.frees, before + 1);
  EXPECT_EQ(late.freed[before % late.freed.size()], early.generation);
}

TEST(CudaMemory, OfThisProcessIsUsedAsItIs) {
  for (const char* share : {"descriptor", "ipc"}) {
    epccl::test::Environment environment;
    environment.set("EPCCL_CUDA_SHARE", share);
    const GpuMemory memory(1000, MemoryKind::shareable);
    const auto handle = gpu().export_memory(memory.data() + 10, 50);
    ASSERT_TRUE(handle.ok()) << handle.status().message();
    const auto mapped = gpu().import_memory(*handle);
    ASSERT_TRUE(mapped.ok()) << mapped.status().message();
    EXPECT_EQ((*mapped)->data(), memory.data() + 10);
    EXPECT_EQ((*mapped)->bytes(), 990U);
  }
}

TEST(CudaMemory, ThatCannotBeSharedSaysSo) {
  const GpuMemory plain(100), pinned(100, MemoryKind::pinned);
  EXPECT_THAT(gpu().export_memory(plain.data(), 1).status().message(), HasSubstr("plain memory of a GPU"));
  EXPECT_THAT(gpu().export_memory(pinned.data(), 1).status().message(), HasSubstr("pinned memory of a GPU"));
  const std::vector<std::byte> host(10);
  EXPECT_EQ(gpu().export_memory(host.data(), 1).status().code(), Code::invalid_argument);
}

/// What a program has of the driver itself.
class UsersMemory {
 public:
  explicit UsersMemory(size_t bytes) {
    gpu();
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxPushCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAlloc(&address_, bytes), CUDA_SUCCESS);
  }
  UsersMemory(const UsersMemory&) = delete;
  UsersMemory& operator=(const UsersMemory&) = delete;
  ~UsersMemory() {
    EXPECT_EQ(cuMemFree(address_), CUDA_SUCCESS);
    cuCtxPopCurrent(&context_);
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  CUcontext context_ = nullptr;
  CUdeviceptr address_ = 0;
};

TEST(CudaMemory, OfTheUserIsSharedByCudaIpc) {
  const UsersMemory theirs(3000);
  EXPECT_TRUE(gpu().info(theirs.data())->shareable);
  const auto bytes = numbers(3000, 4);
  put(theirs.data(), bytes);
  const auto handle = gpu().export_memory(theirs.data() + 1000, 2000);
  ASSERT_TRUE(handle.ok()) << handle.status().message();
  EXPECT_EQ(handle->offset, 1000U);
  EXPECT_FALSE(gpu().export_memory(theirs.data() + 1000, 2001).ok());
  Peer peer;
  EXPECT_EQ(peer.read(*handle, 2000), std::vector<std::byte>(bytes.begin() + 1000, bytes.end()));
}

TEST(CudaMemory, SharedByCudaIpcIsAskedForOnce) {
  epccl::test::Environment environment;
  environment.set("EPCCL_CUDA_SHARE", "ipc");
  const UsersMemory theirs(3000);
  const GpuMemory own(3000, MemoryKind::shareable);
  for (const std::byte* data : {theirs.data(), own.data()}) {
    fake_cuda_forget_calls();
    const auto first = *gpu().export_memory(data, 3000), again = *gpu().export_memory(data + 10, 20);
    EXPECT_EQ(fake_cuda_calls("cuIpcGetMemHandle"), 1);
    EXPECT_EQ(again.offset, 10U);
    EXPECT_EQ(again.opaque, first.opaque);
    EXPECT_EQ(again.generation, first.generation);
  }
}

// A driver may keep that call for as long as the GPU works.
TEST(CudaMemory, OfOthersIsThereWhileTheDriverTakesItsTimeToShareOne) {
  const UsersMemory theirs(3000);
  for (const char* share : {"descriptor", "ipc", "user's"}) {
    epccl::test::Environment environment;
    if (share[0] != 'u') environment.set("EPCCL_CUDA_SHARE", share);
    const GpuMemory known(1000, MemoryKind::shareable), own(3000, MemoryKind::shareable);
    EXPECT_OK(gpu().export_memory(known.data(), 1).status());
    const std::byte* const slow = share[0] == 'u' ? theirs.data() : own.data();
    fake_cuda_forget_calls();
    fake_cuda_set("export_waits", 1);
    auto shared = std::async(std::launch::async, [slow] { return gpu().export_memory(slow, 1).ok(); });
    while (fake_cuda_calls("cuMemExportToShareableHandle") + fake_cuda_calls("cuIpcGetMemHandle") == 0)
      std::this_thread::yield();
    auto others = std::async(std::launch::async, [&known] {
      const GpuMemory another(100);
      return gpu().info(another.data()) && gpu().info(known.data()) &&
             gpu().export_memory(known.data(), 1).ok();
    });
    EXPECT_EQ(others.wait_for(std::chrono::seconds(30)), std::future_status::ready) << share;
    fake_cuda_set("export_waits", 0);
    EXPECT_TRUE(others.get()) << share;
    EXPECT_TRUE(shared.get()) << share;
  }
}

TEST(CudaMemory, FreedWhileItIsSharedIsGoneAfterwards) {
  const long before = fake_cuda_live("allocations");
  GpuMemory first(1000, MemoryKind::shareable), memory(1000, MemoryKind::shareable);
  EXPECT_OK(gpu().export_memory(first.data(), 1).status());
  fake_cuda_forget_calls();
  fake_cuda_set("export_waits", 1);
  auto shared = std::async(std::launch::async, [&] { return gpu().export_memory(memory.data(), 1).ok(); });
  while (fake_cuda_calls("cuMemExportToShareableHandle") == 0) std::this_thread::yield();
  memory.free_now();
  fake_cuda_set("export_waits", 0);
  EXPECT_TRUE(shared.get());
  first.free_now();
  EXPECT_EQ(fake_cuda_live("allocations"), before);
}

// Others have open what was there, and to close it in a call would wait for the stream that waits for the call.
TEST(CudaMemory, OfTheUserAtTheSameAddressIsNotSharedAndWhatWasThereIsSaidToBeGone) {
  fake_cuda_set("reuse", 1);
  auto first = std::make_unique<UsersMemory>(4096);
  const auto before = *gpu().export_memory(first->data(), 4096);
  first.reset();
  const UsersMemory second(4096);
  EXPECT_EQ(second.data(), reinterpret_cast<std::byte*>(before.base));
  for (int times = 0; times < 2; ++times)
    EXPECT_THAT(gpu().export_memory(second.data(), 4096).status().message(),
                HasSubstr("was allocated where other memory was, which other processes have open"));
  fake_cuda_set("reuse", 0);
  const UsersMemory elsewhere(4096);
  const auto after = *gpu().export_memory(elsewhere.data(), 4096);
  EXPECT_EQ(after.frees, before.frees + 1);
  EXPECT_EQ(after.freed[before.frees % after.freed.size()], before.generation);
}

/// Where memory was that `readers` were given, and what is there now.
struct Replaced {
  explicit Replaced(const std::vector<std::vector<pid_t>>& readers) {
    fake_cuda_set("reuse", 1);
    auto first = std::make_unique<UsersMemory>(4096);
    for (const auto& each : readers) before = *gpu().export_memory(first->data(), 1, &each);
    first.reset();
    now = std::make_unique<UsersMemory>(4096);
    EXPECT_EQ(now->data(), reinterpret_cast<std::byte*>(before.base));
  }
  ~Replaced() { fake_cuda_set("reuse", 0); }
  bool can_be_shared() const { return gpu().can_export(now->data(), 1).ok(); }
  MemoryHandle before;
  std::unique_ptr<UsersMemory> now;
};

TEST(CudaMemory, OfTheUserAtTheSameAddressIsSharedWhenAllReadersHaveClosedWhatWasThere) {
  const Replaced memory({{7}, {7, 9}});
  const uint64_t gone = memory.before.frees + 1;
  EXPECT_FALSE(memory.can_be_shared());
  gpu().closed_by(7, gone);
  EXPECT_FALSE(memory.can_be_shared()) << "9 has it open";
  gpu().closed_by(9, gone - 1);
  EXPECT_FALSE(memory.can_be_shared()) << "9 has closed what went before it";
  gpu().closed_by(9, gone);
  gpu().closed_by(9, gone - 1);  // of another communicator that is behind
  EXPECT_TRUE(memory.can_be_shared());
  const std::vector<pid_t> readers{7};
  const auto after = gpu().export_memory(memory.now->data(), 1, &readers);
  ASSERT_TRUE(after.ok()) << after.status().message();
  EXPECT_NE(after->generation, memory.before.generation);
}

TEST(CudaMemory, OfTheUserAtTheSameAddressIsSharedWhereNoOtherProcessWasGivenWhatWasThere) {
  const std::vector<std::vector<pid_t>> nobody(1);
  EXPECT_TRUE(Replaced(nobody).can_be_shared());
}

TEST(CudaMemory, OfTheUserThatWasOnlyAskedForIsInNobodysWay) {
  fake_cuda_set("reuse", 1);
  auto first = std::make_unique<UsersMemory>(4096);
  EXPECT_OK(gpu().can_export(first->data(), 1));
  first.reset();
  const UsersMemory second(4096);
  EXPECT_OK(gpu().export_memory(second.data(), 1).status());
  fake_cuda_set("reuse", 0);
}

TEST(CudaMemory, OfTheSameAddressIsAnotherAllocation) {
  fake_cuda_set("reuse", 1);
  for (const char* share : {"descriptor", "ipc"}) {
    epccl::test::Environment environment;
    environment.set("EPCCL_CUDA_SHARE", share);
    auto first = std::make_unique<GpuMemory>(4096, MemoryKind::shareable);
    const auto before = *gpu().export_memory(first->data(), 1);
    first.reset();
    const GpuMemory second(4096, MemoryKind::shareable);
    const auto after = *gpu().export_memory(second.data(), 1);
    EXPECT_EQ(before.base, after.base);
    EXPECT_NE(before.generation, after.generation);
  }
  fake_cuda_set("reuse", 0);
}

// An address that one GPU gave back another may be given: all GPUs of a process share their addresses.
TEST(CudaMemory, OfTwoGpusAreDifferentAllocations) {
  const GpuMemory first(4096, MemoryKind::shareable), one_more(4096, MemoryKind::shareable);
  const GpuMemory second(4096, MemoryKind::shareable, gpu(1)), two_more(4096, MemoryKind::shareable, gpu(1));
  std::set<uint64_t> generations;
  for (const GpuMemory* each : {&first, &one_more})
    generations.insert(gpu().export_memory(each->data(), 1)->generation);
  for (const GpuMemory* each : {&second, &two_more})
    generations.insert(gpu(1).export_memory(each->data(), 1)->generation);
  EXPECT_EQ(generations.size(), 4U);
}

}  // namespace
}  // namespace epccl::device::test
