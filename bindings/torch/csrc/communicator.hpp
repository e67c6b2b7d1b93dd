// A communicator of libepccl: owned, and its result codes as exceptions.
#pragma once

#include <epccl/epccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace epccl_torch {

/// Throws torch.distributed.DistBackendError with the library's text unless `result` is success.
void check(epcclResult_t result, const std::string& what);

/// How long a group's calls wait for a silent rank; setTimeout() changes it while others read it.
using SharedTimeout = std::shared_ptr<std::atomic<std::chrono::milliseconds>>;

/// At most a hundred years: clocks count nanoseconds, in which the time after 292 years would lie in the past.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds timeout) {
  return std::min<std::chrono::milliseconds>(timeout, std::chrono::years(100));
}

inline double in_seconds(std::chrono::milliseconds timeout) {
  return static_cast<double>(timeout.count()) / 1000;
}

/// Where a call goes: to which ranks, and the stream in whose order it runs (NULL, with host memory: at once).
struct Line {
  epcclComm_t comm;
  epcclStream_t stream = nullptr;
  /// Some address of the GPU. Empty tensors have none, and it tells the library that the call is this GPU's.
  void* nowhere = nullptr;

  void* place(void* address) const { return address != nullptr ? address : nowhere; }
  const void* place(const void* address) const { return address != nullptr ? address : nowhere; }
};

class Communicator {
 public:
  /// Blocks until all have joined. `timeout`: seconds a rank waits for a silent peer, here and in every call. `go_on` is called again and
  /// again meanwhile: what it throws ends the wait.
  Communicator(const epcclUniqueId& id, int ranks, int rank, double timeout, const std::string& name,
               const std::function<void()>& go_on);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  /// Throws when it was aborted or left.
  epcclComm_t handle() const;
  struct Failure {
    std::string text;  // "": there is none
    epcclReason_t reason = epcclReasonNone;
  };
  /// What ended calls that run in the order of a stream.
  Failure failure() const;
  /// Ends all work with an error, here and on the other ranks. Any thread, any number of times.
  void abort() noexcept;
  /// Leaves in order; no call may be in progress.
  void leave() noexcept;

 private:
  void join(const std::string& name, const std::function<void()>& go_on);

  std::atomic<epcclComm_t> handle_{nullptr};
  std::atomic<bool> aborted_{false};
};

}  // namespace epccl_torch
