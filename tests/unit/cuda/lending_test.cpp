// GPU memory for network cards: what descriptors are of, and what is refused, with the reason.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cuda/lending.hpp"
#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

/// A setting of the double for a while.
class Faked {
 public:
  Faked(const char* what, long value, long before) : what_(what), before_(before) {
    fake_cuda_set(what, value);
  }
  Faked(const Faked&) = delete;
  Faked& operator=(const Faked&) = delete;
  ~Faked() { fake_cuda_set(what_, before_); }

 private:
  const char* what_;
  const long before_;
};

/// A GPU as it is found with what is faked then.
struct Found {
  cuda::Context context = take(cuda::Context::retain(**cuda::driver(), 0));
  cuda::Lending lending{context};
};

/// What a card would read at the start of what was lent.
std::vector<std::byte> read_lent(const LentMemory& lent, size_t offset, size_t count) {
  std::vector<std::byte> bytes(count);
  const off_t begin = ::lseek(lent.descriptor.get(), 0, SEEK_CUR);
  EXPECT_EQ(::pread(lent.descriptor.get(), bytes.data(), count, begin + static_cast<off_t>(offset)),
            static_cast<ssize_t>(count));
  return bytes;
}

TEST(CudaLending, GivesADescriptorOfThePagesAround) {
  for (const MemoryKind kind : {MemoryKind::plain, MemoryKind::shareable}) {
    const GpuMemory memory(3 << 20, kind);
    const auto bytes = numbers(3 << 20, 5);
    put(memory.data(), bytes);
    constexpr size_t at = 5 * 4096 + 77, count = 10000;
    const LentMemory lent = take(gpu().lend(memory.data() + at, count));
    EXPECT_EQ(lent.address, reinterpret_cast<uint64_t>(memory.data()) + 5 * 4096);
    EXPECT_EQ(lent.bytes, 3u * 4096);
    EXPECT_EQ(read_lent(lent, 77, count), std::vector(bytes.begin() + at, bytes.begin() + at + count));
  }
}

TEST(CudaLending, OfTheHostFreedOrManagedMemoryIsRefused) {
  std::byte host[100];
  EXPECT_THAT(gpu().lend(host, 100).status().message(), HasSubstr("is not memory of GPU 0"));
  EXPECT_THAT(host_device().lend(host, 100).status().message(), HasSubstr("host device"));
  GpuMemory memory(8192);
  const Faked managed("managed", 1, 0);
  EXPECT_THAT(gpu().lend(memory.data(), 100).status().message(), HasSubstr("is managed memory"));
  std::byte* const was = memory.data();
  memory.free_now();
  EXPECT_FALSE(gpu().lend(was, 100).ok());
}

TEST(CudaLending, BeyondAnAllocationIsLentByAddressAloneAndSaysWhy) {
  const GpuMemory memory(8192);
  const LentMemory lent = take(gpu().lend(memory.data(), 8193));
  EXPECT_FALSE(lent.descriptor);
  EXPECT_EQ(lent.bytes, 3u * 4096);
  EXPECT_THAT(lent.without_descriptor, HasSubstr("cuMemGetHandleForAddressRange"));
}

/// Virtual memory of which the first part is there, as allocators have it whose segments grow.
class GrowingSegment {
 public:
  GrowingSegment() {
    gpu();
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    wanted.location.id = 0;
    wanted.allocFlags.gpuDirectRDMACapable = 1;
    const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    EXPECT_EQ(cuMemAddressReserve(&address_, reserved, 0, 0, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemCreate(&memory_, mapped, &wanted, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemMap(address_, mapped, 0, memory_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuMemSetAccess(address_, mapped, &access, 1), CUDA_SUCCESS);
  }
  GrowingSegment(const GrowingSegment&) = delete;
  GrowingSegment& operator=(const GrowingSegment&) = delete;
  ~GrowingSegment() {
    EXPECT_EQ(cuMemUnmap(address_, mapped), CUDA_SUCCESS);
    EXPECT_EQ(cuMemRelease(memory_), CUDA_SUCCESS);
    EXPECT_EQ(cuMemAddressFree(address_, reserved), CUDA_SUCCESS);
  }
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

  static constexpr size_t reserved = 64 << 20, mapped = 2 << 20;

 private:
  CUdeviceptr address_ = 0;
  CUmemGenericAllocationHandle memory_ = 0;
};

// Whoever took what was reserved for an allocation would ask for more than is there.
TEST(CudaLending, OfVirtualMemoryOfOthersIsOfThePagesThatAreAskedFor) {
  const Faked no_peer_memory("gpu_direct", 0, 1);
  const GrowingSegment segment;
  const auto info = gpu().info(segment.data() + 5000);
  ASSERT_TRUE(info);
  EXPECT_FALSE(info->shareable);
  EXPECT_EQ(info->base, 0u);
  EXPECT_EQ(info->size, 0u);
  EXPECT_EQ(info->generation, 0u);
  EXPECT_TRUE(take(Found().lending.lend(segment.data() + 5000, 1000)).descriptor);
  EXPECT_FALSE(Found().lending.lend(segment.data(), GrowingSegment::reserved).ok());
}

TEST(CudaLending, WithoutDescriptorsIsByAddress) {
  const GpuMemory memory(100);
  const Faked no_descriptors("dma_buf", 0, 1);
  const LentMemory lent = take(Found().lending.lend(memory.data(), 100));
  EXPECT_FALSE(lent.descriptor);
  EXPECT_THAT(lent.without_descriptor, HasSubstr("no dma-buf"));
  const Faked nor_by_address("gpu_direct", 0, 1);
  EXPECT_THAT(Found().lending.lend(memory.data(), 100).status().message(),
              HasSubstr("lets no other device reach its memory"));
}

// Peers on other GPUs read what a card has written, too.
TEST(CudaLending, FlushesWritesToAllGpusWhereTheGpuDoesNotOrderThemForAll) {
  const GpuMemory memory(100);
  fake_cuda_forget_calls();
  for (const long order : {CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER,
                           CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES}) {
    const Faked ordered("rdma_order", order, 0);
    EXPECT_OK(Found().lending.admit_writes());
  }
  EXPECT_EQ(fake_cuda_calls("flushes to all devices"), 2);
  EXPECT_EQ(fake_cuda_calls("cuFlushGPUDirectRDMAWrites"), 2) << "not where they are ordered for all";
  const Faked no_flush("rdma_flush", 0, 1);
  EXPECT_THAT(Found().lending.lend(memory.data(), 100).status().message(), HasSubstr("cannot flush"));
}

TEST(CudaLending, CountsWhatIsFreedAndTellsAllocationsAtOneAddressApart) {
  const Faked reuse("reuse", 1, 0);
  for (const MemoryKind kind : {MemoryKind::plain, MemoryKind::shareable}) {
    GpuMemory memory(1 << 21, kind);
    const uint64_t generation = gpu().info(memory.data())->generation, frees = gpu().frees();
    EXPECT_NE(generation, 0u);
    std::byte* const was = memory.data();
    memory.free_now();
    EXPECT_EQ(gpu().frees(), frees + 1);
    const GpuMemory next(1 << 21, kind);
    ASSERT_EQ(next.data(), was);
    EXPECT_NE(gpu().info(was)->generation, generation);
  }
}

}  // namespace
}  // namespace epccl::device::test
