// What the kernel's part of an exchange costs beneath a compute: the same bytes by one bare TCP socket, with nothing to pack,
// to place or to add up. No library that talks TCP can be hidden better.
#pragma once

#include <memory>
#include <vector>

#include "perf/src/coordinator.hpp"
#include "perf/src/overlap/overlap_meter.hpp"

namespace epccl::perf {

/// Between two ranks. A thread of its own sends and receives without blocking, asks to be woken for as much as the socket
/// holds, and sleeps in between.
class BareSockets : public Overlapped {
 public:
  /// `bytes[i]`: what each rank sends the other in exchange i, one after the other. Collective; an error unless there are two ranks.
  static Result<std::unique_ptr<BareSockets>> connect(Coordinator& coordinator, std::vector<size_t> bytes);
  ~BareSockets() override;

  Status call() override;
  Status start() override;
  Status finish() override;

 private:
  class Exchanger;
  explicit BareSockets(std::unique_ptr<Exchanger> exchanger);

  std::unique_ptr<Exchanger> exchanger_;
};

}  // namespace epccl::perf
