#include "device/host/host_stream.hpp"

#include <gmock/gmock.h>

#include <future>
#include <new>
#include <string>
#include <vector>

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

TEST(HostStream, LooksAheadFromWorkThatWaitsToTheNextOneOnly) {
  HostStream stream;
  std::promise<void> all_are_queued;
  std::vector<std::string> done;
  stream.enqueue([&]() -> Status {
    all_are_queued.get_future().wait();
    for (int i = 0; i < 2; ++i) HostStream::look_ahead();
    done.emplace_back("first");
    return {};
  });
  for (const char* name : {"second", "third"})
    stream.enqueue(
        [&done, name]() -> Status {
          done.emplace_back(name);
          HostStream::look_ahead();
          return {};
        },
        [&done, name] { done.push_back(std::string("ahead of ") + name); });
  all_are_queued.set_value();
  EXPECT_TRUE(stream.synchronize().ok());
  EXPECT_THAT(done, ::testing::ElementsAre("ahead of second", "ahead of second", "first", "second",
                                           "ahead of third", "third"));
  HostStream::look_ahead();  // of no stream's thread
}

}  // namespace
}  // namespace epccl::device
