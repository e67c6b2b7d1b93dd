// What the compiler said about the kernels: all are there, for all devices, none keeps registers in memory, and those that wait take few.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "device/kernels/launch.hpp"

namespace epccl::device::kernels::testing {
namespace {

struct Compiled {
  int stack = -1, spill_stores = -1, spill_loads = -1, registers = 0;
};
using Report = std::map<std::pair<std::string, std::string>, Compiled>;  // by kernel and device

Report report_of(Image image) {
  Report report;
  std::ifstream file(std::string(EPCCL_CUDA_REPORTS) + "/" + to_string(image) + ".ptxas");
  Compiled* kernel = nullptr;
  for (std::string line; std::getline(file, line);) {
    char name[200], device[20];
    Compiled read;
    if (std::sscanf(line.c_str(), "ptxas info : Compiling entry function '%199[^']' for '%19[^']'", name,
                    device) == 2)
      kernel = &report[{name, device}];
    if (kernel == nullptr) continue;
    if (std::sscanf(line.c_str(), " %d bytes stack frame, %d bytes spill stores, %d bytes spill loads",
                    &read.stack, &read.spill_stores, &read.spill_loads) == 3)
      *kernel = read;
    std::sscanf(line.c_str(), "ptxas info : Used %d registers", &kernel->registers);
  }
  return report;
}

class CompiledKernels : public ::testing::TestWithParam<Image> {
 protected:
  void SetUp() override {
    if (bytes_of(GetParam()).empty()) GTEST_SKIP() << "built without a CUDA toolkit";
  }
};

TEST_P(CompiledKernels, AreThereForEveryDeviceAndSpillNothing) {
  const Report report = report_of(GetParam());
  size_t kernels = 0;
  for (const Kernel& kernel : all_kernels()) {
    if (kernel.image != GetParam()) continue;
    ++kernels;
    for (const char* device : {"sm_80", "sm_90", "sm_100"}) {
      SCOPED_TRACE(std::string(kernel.name) + " for " + device);
      const auto found = report.find({kernel.name, device});
      ASSERT_NE(found, report.end());
      EXPECT_EQ(found->second.stack, 0);
      EXPECT_EQ(found->second.spill_stores, 0);
      EXPECT_EQ(found->second.spill_loads, 0);
      EXPECT_GT(found->second.registers, 0);
      if (kernel.image == Image::signals)
        EXPECT_LE(found->second.registers, 32) << "a warp beside a product that leaves 1024";
      else
        EXPECT_LE(found->second.registers, 128) << "half of the threads of a multiprocessor";
    }
  }
  EXPECT_EQ(report.size(), 3 * kernels) << "every kernel has a name that can be launched";
}

TEST_P(CompiledKernels, AreAFatbin) {
  const auto image = bytes_of(GetParam());
  constexpr uint32_t fatbin_magic = 0xba55ed50;
  uint32_t magic = 0;
  ASSERT_GT(image.size(), sizeof magic);
  std::memcpy(&magic, image.data(), sizeof magic);
  EXPECT_EQ(magic, fatbin_magic);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(image.data()) % 8, 0U);
}

INSTANTIATE_TEST_SUITE_P(CudaKernels, CompiledKernels, ::testing::ValuesIn(all_images),
                         [](const auto& param_info) { return std::string(to_string(param_info.param)); });

}  // namespace
}  // namespace epccl::device::kernels::testing
