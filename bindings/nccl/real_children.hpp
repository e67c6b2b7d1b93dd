// The splits and shrinks of a real communicator that go on in the background. NVIDIA's library tells on the parent how far one is, and
// writes the new handle when it is through, whoever waits for that: parent and handle have to be there until then.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "abi.hpp"

namespace epccl::nccl {

/// Of one parent. Any thread.
class RealChildren {
 public:
  /// Where NVIDIA's library writes a handle.
  using Slot = std::shared_ptr<ncclComm_t>;

  /// One is made in the background, from begin() to end().
  void begin() { ++in_making_; }
  void end() { --in_making_; }
  bool in_making() const { return in_making_ > 0; }

  /// Its maker calls the real library with the parent until it leaves, which it does soon once this closes. False: it must not,
  /// the parent is being ended.
  bool enter();
  void leave();
  bool is_closing() const { return closing_; }
  /// Waits until no maker is in the real library; none enters any more.
  void close();

  /// NVIDIA's library may still write there, and the maker no longer waits for it.
  void leave_behind(Slot slot);
  bool has_left_behind() const { return left_behind_count_ > 0; }
  /// To be called when NVIDIA's library is through with the parent: the communicators that nobody waited for.
  std::vector<ncclComm_t> take_left_behind();

 private:
  std::atomic<int> in_making_{0};
  std::atomic<bool> closing_{false};
  std::atomic<size_t> left_behind_count_{0};

  std::mutex mutex_;  // of what follows
  std::condition_variable left_;
  int inside_ = 0;
  std::vector<Slot> left_behind_;
};

}  // namespace epccl::nccl
