// Ends mappings in a thread of its own. A driver may wait for the whole GPU before it unmaps what another process allocated
// (CUDA does not say what cuIpcCloseMemHandle does), and there a stream may be waiting for the very call that notices.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "device/device.hpp"

namespace epccl::transports {

class Unmapper {
 public:
  Unmapper() = default;
  Unmapper(const Unmapper&) = delete;
  Unmapper& operator=(const Unmapper&) = delete;
  /// Waits until all are gone.
  ~Unmapper();

  /// No work uses it any more. Returns at once. The thread is made with the first.
  void end(std::unique_ptr<device::MappedMemory> mapping);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<device::MappedMemory>> ending_;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace epccl::transports
