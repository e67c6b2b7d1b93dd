// Copies as the driver takes them: a list in one call where it can, else one call each.
#pragma once

#include <atomic>
#include <span>
#include <vector>

#include "device/cuda/context.hpp"
#include "device/device.hpp"

namespace epccl::device::cuda {

/// A stream to which copies go, and what is known of it.
struct CopyTarget {
  CUstream stream = nullptr;
  bool is_capturing = false;
  bool beside_compute = false;  // hint: leave the compute cores alone, but for copies that may use them
};

class Copier {
 public:
  explicit Copier(const Context& context);

  /// Queues the copies; the context is current.
  Status copy(std::span<const CopyWork> copies, const CopyTarget& target);

  /// What it will do with a list on a stream with a name, and why: for reports.
  std::string description() const;

 private:
  /// Runs of bytes, one after the other in three arrays, as the driver's list wants them.
  struct Runs {
    std::vector<CUdeviceptr> destinations, sources;
    std::vector<size_t> bytes;
    std::vector<CUmemcpyFlags> flags;
    void add(const std::byte* destination, const std::byte* source, uint64_t size, CUmemcpyFlags flag);
  };

  bool can_batch(const CopyTarget& target) const;
  bool can_capture_lists() const;
  Status copy_rows(const CopyWork& work, CUstream stream) const;
  Status copy_runs(Runs& runs, const CopyTarget& target);
  Status copy_each(const Runs& runs, CUstream stream) const;
  CUresult batch(Runs& runs, const CopyTarget& target) const;

  const Context& context_;
  const uint64_t max_pitch_;
  std::atomic<bool> batches_;  // until the platform refused a list
  const bool captures_lists_;
};

}  // namespace epccl::device::cuda
