// Reductions on queues, their kernels run on the host by the double.
#include <gmock/gmock.h>

#include <array>

#include "../cuda_kernels/launched.hpp"
#include "device/kernels/kernel_list.hpp"
#include "device/kernels/kernel_queue.hpp"
#include "fake_driver.hpp"
#include "gpu.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

uint32_t blocks_of_last_launch = 0;

/// The code of each kernel, by its name.
void bring_kernels() {
#define EPCCL_BRING(entry, join)                                                       \
  fake_cuda_kernel(#entry, sizeof(kernels::ReduceParameters),                          \
                   [](const void* bytes, unsigned blocks, unsigned threads) {          \
                     kernels::Launch<kernels::ReduceParameters> launch{                \
                         {#entry, kernels::Image::reduce}, blocks, threads, {}, 0};    \
                     std::memcpy(&launch.parameters, bytes, sizeof launch.parameters); \
                     blocks_of_last_launch = blocks;                                   \
                     std::mt19937_64 random(1);                                        \
                     kernels::testing::run_on_host(launch, random);                    \
                   });
  EPCCL_REDUCE_KERNELS(EPCCL_BRING)
}

class CudaReduce : public ::testing::Test {
 protected:
  CudaReduce() {
    setenv("FAKE_CUDA_OPEN", "1", 1);  // kernels run on the host
    if (!kernels::bytes_of(kernels::Image::reduce).empty()) bring_kernels();
  }
  void SetUp() override {
    if (kernels::bytes_of(kernels::Image::reduce).empty()) GTEST_SKIP() << "built without nvcc";
  }
};

std::vector<std::byte> floats(size_t count, float first) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i) / 8;
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST_F(CudaReduce, GivesTheBitsOfTheHost) {
  constexpr size_t count = 3000, bytes = count * sizeof(float);
  const GpuMemory memory(bytes * 4);
  std::vector<std::vector<std::byte>> inputs;
  std::vector<ReduceSource> host, device;
  for (size_t s = 0; s < 3; ++s) {
    inputs.push_back(floats(count, 1.1F * static_cast<float>(s + 1)));
    put(memory.data() + s * bytes, inputs.back());
    device.push_back({memory.data() + s * bytes, true});
  }
  for (const auto& input : inputs) host.push_back({input.data(), true});
  const Reduction average{Element::float32, ReduceOp::avg, 0, 3};
  std::vector<std::byte> expected(bytes);
  reduce(average, host, true, expected.data(), count);

  const auto queue = take(gpu().make_queue(QueueKind::compute));
  queue->set_blocks(2);
  EXPECT_OK(queue->reduce({average, device, true, memory.data() + 3 * bytes, count, {}}));
  EXPECT_OK(queue->synchronize());
  EXPECT_EQ(get(memory.data() + 3 * bytes, bytes), expected);
  EXPECT_LE(blocks_of_last_launch, 2U);
}

TEST_F(CudaReduce, WritesAllPlacesByOneKernel) {
  constexpr size_t count = 3000, bytes = count * sizeof(float);
  const GpuMemory memory(bytes * 4);
  const auto first = floats(count, 1.5F), second = floats(count, 2.25F);
  put(memory.data(), first);
  put(memory.data() + bytes, second);
  const std::array sources{ReduceSource{memory.data(), true}, ReduceSource{memory.data() + bytes, true}};
  const std::array host{ReduceSource{first.data(), true}, ReduceSource{second.data(), true}};
  // One of them is a source.
  const std::array also{memory.data() + bytes, memory.data() + 3 * bytes};
  const Reduction sum{Element::float32, ReduceOp::sum, 0, 2};
  std::vector<std::byte> expected(bytes);
  reduce(sum, host, true, expected.data(), count);

  const auto queue = take(gpu().make_queue(QueueKind::compute));
  fake_cuda_forget_calls();
  EXPECT_OK(queue->reduce({sum, sources, true, memory.data() + 2 * bytes, count, also}));
  EXPECT_OK(queue->synchronize());
  for (const size_t place : {1, 2, 3})
    EXPECT_EQ(get(memory.data() + place * bytes, bytes), expected) << place;
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 1);
}

// That would wait for the GPU, and for what a stream of it waits for.
TEST_F(CudaReduce, LoadsNoKernelByItsFirstLaunch) {
  unsetenv("CUDA_MODULE_LOADING");
  fake_cuda_set("attributes_load", 0);
  Device& device = gpu(1);  // which nobody has opened
  EXPECT_EQ(fake_cuda_calls("cuFuncLoad"), static_cast<long>(kernels::all_kernels().size()));
  constexpr size_t count = 100;
  const GpuMemory memory(2 * count * sizeof(float), MemoryKind::plain, device);
  const std::array one{ReduceSource{memory.data(), true}};
  const auto queue = take(device.make_queue(QueueKind::compute));
  EXPECT_OK(queue->reduce({{Element::float32, ReduceOp::sum, 0, 1},
                           one,
                           true,
                           memory.data() + count * sizeof(float),
                           count,
                           {}}));
  EXPECT_OK(queue->synchronize());
  EXPECT_EQ(fake_cuda_calls("cuLaunchKernel"), 1);
  EXPECT_EQ(fake_cuda_calls("loads by launches"), 0);
  fake_cuda_set("attributes_load", 1);
}

TEST_F(CudaReduce, UsesTheFewestBlocksThatKeepUpUnlessItIsToldOthers) {
  constexpr size_t count = 1 << 20;
  const GpuMemory memory(count * sizeof(float));
  const std::array one{ReduceSource{memory.data(), true}};
  const Reduction sum{Element::float32, ReduceOp::sum, 0, 1};
  const auto queue = take(gpu().make_queue(QueueKind::compute));
  const auto blocks = [&](int set) {
    queue->set_blocks(set);
    EXPECT_OK(queue->reduce({sum, one, true, memory.data(), count, {}}));
    EXPECT_OK(queue->synchronize());
    return blocks_of_last_launch;
  };
  // The double has 4 multiprocessors, and 128 GB/s: 76800 bytes are under way.
  EXPECT_EQ(gpu().fewest_blocks({}), 10);
  EXPECT_EQ(blocks(0), 10U);
  EXPECT_EQ(blocks(3), 3U);
}

TEST_F(CudaReduce, KernelsThatTakeRowsInTurnHaveSeveralTimesWhatTheGpuSaysItRunsAtOnce) {
  const auto queue = take(gpu().make_queue(QueueKind::compute));
  kernels::MoveParameters rows;
  rows.parts[0].bytes = 4096;
  rows.part_count = 1;
  rows.rows.most = 150;
  const auto blocks = [&] { return kernels::move_launch(rows, take(kernels::grid_of(*queue))).blocks; };
  // The double has 4 multiprocessors, with 1024 threads each.
  EXPECT_EQ(blocks(), 2U * 4 * 4);
  rows.rows.most = 1'000'000;
  EXPECT_EQ(blocks(), 8U * 4 * 4);
  queue->set_blocks(5);
  EXPECT_EQ(blocks(), 5U);
}

TEST_F(CudaReduce, NeedsAComputeQueueAndSourcesThatFit) {
  const GpuMemory memory(64);
  const std::array one{ReduceSource{memory.data(), true}};
  const Reduction sum{Element::float32, ReduceOp::sum, 0, 1};
  const auto engine = take(gpu().make_queue(QueueKind::copy_engine));
  EXPECT_THAT(engine->reduce({sum, one, true, memory.data(), 4, {}}).message(),
              HasSubstr("copy engine cannot reduce"));
  const std::vector<ReduceSource> many(static_cast<size_t>(gpu().max_reduce_sources()) + 1, one[0]);
  const auto compute = take(gpu().make_queue(QueueKind::compute));
  EXPECT_THAT(compute->reduce({sum, many, true, memory.data(), 4, {}}).message(),
              HasSubstr("65 sources or places, where 1 to 64"));
}

}  // namespace
}  // namespace epccl::device::test
