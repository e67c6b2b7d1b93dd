// The GPU that a rank's buffers lie on, where --device says cuda.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/graph_stream.hpp"
#include "perf/src/measuring_options.hpp"
#include "perf/src/run_facts.hpp"

namespace epccl::perf {

class Gpu {
 public:
  /// Where --device says cuda, before the first communicator: the library looks once whether there can be GPUs. That there are none
  /// make_current() says.
  static void load_driver(const MeasuringOptions& options);
  /// Makes the GPU of rank `rank` the calling thread's, and the one of epcclMemAlloc: before communicators, which are told then that
  /// the rank has one. Null: the host. Error: there is none, or not so many.
  static Result<device::Device*> make_current(const MeasuringOptions& options,
                                              const std::vector<RankInfo>& ranks, int rank);
  /// The same GPU, with a queue for the rank's own copies; null: the host.
  static Result<std::unique_ptr<Gpu>> of_rank(const MeasuringOptions& options,
                                              const std::vector<RankInfo>& ranks, int rank);

  /// `registered`: of epcclMemAlloc.
  Result<std::byte*> allocate(size_t bytes, bool registered);
  void free(std::byte* memory, bool registered);
  /// Copies between the host and the GPU, and waits.
  Status copy(std::byte* to, const std::byte* from, size_t bytes);
  /// A stream whose calls can be captured.
  Result<std::unique_ptr<device::GraphStream>> graph_stream() const;
  /// Waits for the NULL stream, in which calls on GPU memory are made.
  Status wait();

 private:
  Gpu(device::Device& device, std::unique_ptr<device::Queue> queue)
      : device_(device), queue_(std::move(queue)) {}

  device::Device& device_;
  std::unique_ptr<device::Queue> queue_;
};

}  // namespace epccl::perf
