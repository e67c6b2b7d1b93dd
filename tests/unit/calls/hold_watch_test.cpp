#include "runtime/streams/hold_watch.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace epccl::runtime {
namespace {

const Status failed(Code::device_error, "a call has failed");

/// A place where a GPU waits for a thread, and whether it was let go.
class Waits {
 public:
  explicit Waits(const HoldWatch::WorkerPtr& worker)
      : ticket_({{worker}, [] { return true; }, [this] { was_let_go_ = true; }}) {}
  bool was_let_go() const { return was_let_go_; }

 private:
  bool was_let_go_ = false;
  const HoldWatch::Ticket ticket_;
};

class LetGo : public ::testing::Test {
 protected:
  bool has_failed_ = false;
  const HoldWatch::WorkerPtr worker_ = std::make_shared<HoldWatch::Worker>(
      HoldWatch::Worker::Owner{[] { return 1000.0; }, [this](const Status&) { has_failed_ = true; }});
  const Waits waits_{worker_};
};

TEST_F(LetGo, IsWhatWaitsForTheCallingThread) {
  HoldWatch::let_go_of_this_thread(failed);
  EXPECT_FALSE(waits_.was_let_go());
  worker_->runs_here();
  HoldWatch::let_go_of_this_thread(failed);
  EXPECT_TRUE(waits_.was_let_go());
  EXPECT_TRUE(has_failed_);
}

TEST_F(LetGo, IsNothingOfAWorkerThatIsClosedWhoseThreadMayHaveEndedBeforeThisBegan) {
  worker_->runs_here();
  worker_->close();
  HoldWatch::let_go_of_this_thread(failed);
  EXPECT_FALSE(waits_.was_let_go());
}

}  // namespace
}  // namespace epccl::runtime
