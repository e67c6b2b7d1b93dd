// What copies cost beneath a compute on this machine: as many bytes by one thread that does nothing else, with no other rank to
// wait for. No collective on emulated engines can be hidden better.
#pragma once

#include <memory>
#include <span>

#include "device/host/host_stream.hpp"
#include "perf/src/overlap/overlap_meter.hpp"

namespace epccl::perf {

/// Copies of this rank's own memory, past the cache, on EPCCL_HOST_ENGINE_CORES where that is given.
class BareCopies : public Overlapped {
 public:
  /// A call fills `to` once, from `from` again and again. Both stay with the caller.
  static Result<std::unique_ptr<BareCopies>> make(std::span<const std::byte> from, std::span<std::byte> to);

  Status call() override;
  Status start() override;
  Status finish() override;

 private:
  BareCopies(std::span<const std::byte> from, std::span<std::byte> to) : from_(from), to_(to) {}
  void copy() const;

  const std::span<const std::byte> from_;
  const std::span<std::byte> to_;
  device::HostStream thread_;
};

}  // namespace epccl::perf
