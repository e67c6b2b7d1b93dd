// What this process has open of other processes' memory by CUDA IPC, for one GPU. The driver refuses to open memory whose addresses in
// its exporter overlap with what is still open of that exporter, so what was freed there has to be closed before:
//
//   exporter                          importer
//   allocation A at 0x1000  ------->  opens A
//   frees A
//   allocation B at 0x1000  ------->  opens B: already mapped.  Closes A, opens B
//
// To close in a call may wait for the call. So, as a rule, nobody is offered B as long as A is open (memory.cpp), which
// has_closed_what_was_freed() tells.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "device/cuda/context.hpp"
#include "device/device.hpp"

namespace epccl::device::cuda {

class IpcMappings {
 public:
  /// One call of open(). The driver gives addresses again, so that `at` does not tell two of them apart.
  struct Mapping {
    uint64_t process = 0, base = 0, size = 0, generation = 0;  // in the exporter
    CUdeviceptr at = 0;
    uint64_t opening = 0;
    bool is_used = true;
    bool is_closed = false;
  };

  explicit IpcMappings(const Context& context) : context_(context) {}

  Result<std::shared_ptr<const Mapping>> open(const MemoryHandle& handle);
  /// Nobody uses it any more: it is closed as soon as no stream is held.
  void end(std::shared_ptr<const Mapping> mapping);

 private:
  using IsMeant = std::function<bool(const Mapping&)>;
  void close_all(const IsMeant& is_meant);
  void close(Mapping& mapping);

  const Context& context_;
  std::mutex mutex_;  // of all of the following, and while the driver opens and closes
  std::vector<std::shared_ptr<Mapping>> open_;
};

// As of Device: for all GPUs of the process.
void hear_of_frees(const MemoryHandle& handle, std::span<const MemoryHandle* const> alive);
bool has_closed_what_was_freed(const MemoryHandle& by);

}  // namespace epccl::device::cuda
