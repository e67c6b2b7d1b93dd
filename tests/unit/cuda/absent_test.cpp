// A machine without CUDA: no toolkit at build time, or no driver.
#include <gmock/gmock.h>

#include "../base/environment.hpp"
#include "device/gpus.hpp"

namespace epccl::device {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(CudaAbsent, IsAnErrorThatSaysWhy) {
  test::Environment environment;
  environment.set("EPCCL_CUDA_LIB", "/nowhere/libcuda.so.1");
  const auto device = cuda_device(0);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), Code::device_error);
  EXPECT_THAT(device.status().message(), AnyOf(HasSubstr("built without the CUDA toolkit"),
                                               HasSubstr("no CUDA driver: /nowhere/libcuda.so.1")));
  EXPECT_FALSE(cuda_device_count().ok());
  EXPECT_FALSE(current_cuda_device());
  int host = 0;
  EXPECT_FALSE(cuda_memory_at(&host));
}

}  // namespace
}  // namespace epccl::device
