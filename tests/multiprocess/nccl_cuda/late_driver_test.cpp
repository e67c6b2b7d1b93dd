// A program that loads CUDA's driver after its first calls. It is linked with no driver, and no real NCCL can be opened.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdlib>

#include "base/nvidia_driver.hpp"

namespace nccl_programs {
namespace {

TEST(LateDriver, IsFoundWhenItHasCome) {
  if (epccl::nvidia_driver_is_there()) GTEST_SKIP() << "this machine has NVIDIA's own";
  setenv("EPCCL_NCCL_LIB", "/nowhere/libnccl.so.2", 1);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 64), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  ASSERT_NE(dlopen(FAKE_CUDA, RTLD_NOW), nullptr) << dlerror();
  EXPECT_EQ(ncclMemAlloc(&memory, 64), ncclSystemError);
  EXPECT_THAT(ncclGetLastError(nullptr),
              testing::HasSubstr("ncclMemAlloc of CUDA memory needs the real NCCL"));
}

}  // namespace
}  // namespace nccl_programs
