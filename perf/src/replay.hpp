// Calls captured into a CUDA graph, which all ranks launch together.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "device/graph_stream.hpp"
#include "epccl/epccl.h"
#include "perf/src/coordinator.hpp"

namespace epccl::perf {

class Gpu;

class Replay {
 public:
  /// Makes the calls that are to be in the graph, on the stream.
  using Record = std::function<Status(epcclStream_t stream)>;
  /// Collective. `comm`: of the calls.
  static Result<Replay> capture(Coordinator& coordinator, const Gpu& gpu, epcclComm_t comm,
                                const Record& record);

  /// One launch by all ranks; how long it took.
  Result<double> run() const;
  /// `warmup` launches, then `launches` that are timed: seconds of each, divided by `calls`.
  Result<std::vector<double>> time(int warmup, int launches, int calls) const;

 private:
  Replay(Coordinator& coordinator, epcclComm_t comm) : coordinator_(coordinator), comm_(comm) {}

  Coordinator& coordinator_;
  epcclComm_t comm_;
  std::unique_ptr<device::GraphStream> stream_;
};

}  // namespace epccl::perf
