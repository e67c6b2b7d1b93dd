// How many of a program's streams wait for calls at the same time. Streams share a GPU's hardware queues, and one that waits holds back what
// stands behind it in its queue: where more wait than there are queues, calls of several ranks of a process may wait for each other.
#pragma once

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>

namespace epccl::device::cuda {

class HeldQueues {
 public:
  explicit HeldQueues(int ordinal);
  HeldQueues(const HeldQueues&) = delete;
  HeldQueues& operator=(const HeldQueues&) = delete;

  /// The stream waits while what this gives lives. Warns, once, where it is one too many. Outlives what it gives.
  std::shared_ptr<const void> hold(CUstream stream);

 private:
  void let_go(CUstream stream);

  const int ordinal_;
  const size_t connections_;
  std::mutex mutex_;
  std::map<CUstream, int> held_;  // calls that the stream waits for, or will, one behind the other
  bool has_warned_ = false;
};

}  // namespace epccl::device::cuda
