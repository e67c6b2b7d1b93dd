// A communicator of libepccl: owned, and its result codes as exceptions.
#pragma once

#include <epccl/epccl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

namespace epccl_torch {

/// Throws torch.distributed.DistBackendError with the library's text unless `result` is success.
void check(epcclResult_t result, const std::string& what);

/// How long a group's calls wait for a silent rank; setTimeout() changes it while others read it.
using SharedTimeout = std::shared_ptr<std::atomic<std::chrono::milliseconds>>;

inline double in_seconds(std::chrono::milliseconds timeout) {
  return static_cast<double>(timeout.count()) / 1000;
}

class Communicator {
 public:
  /// Blocks until all have joined. `timeout`: seconds a rank waits for a silent peer, here and in every call.
  Communicator(const epcclUniqueId& id, int ranks, int rank, double timeout, const std::string& name);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  /// Throws when it was aborted or left.
  epcclComm_t handle() const;
  /// Ends all work with an error, here and on the other ranks. Any thread, any number of times.
  void abort() noexcept;
  /// Leaves in order; no call may be in progress.
  void leave() noexcept;

 private:
  std::atomic<epcclComm_t> handle_{nullptr};
};

}  // namespace epccl_torch
