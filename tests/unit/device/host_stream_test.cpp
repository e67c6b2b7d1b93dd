#include "device/host/host_stream.hpp"

#include <gmock/gmock.h>

#include <new>

namespace epccl::device {
namespace {

TEST(HostStream, TakesWhatItsWorkThrowsForAnErrorAndGoesOn) {
  HostStream stream;
  bool went_on = false;
  stream.enqueue([]() -> Status { throw std::bad_alloc(); });
  stream.enqueue([&went_on]() -> Status {
    went_on = true;
    return {};
  });
  EXPECT_EQ(stream.synchronize().code(), Code::system_error);
  EXPECT_TRUE(went_on);
  EXPECT_TRUE(stream.synchronize().ok());
}

}  // namespace
}  // namespace epccl::device
