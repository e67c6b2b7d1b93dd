// What graphs keep alive, and the capture of a stream into one.
#pragma once

#include <memory>
#include <mutex>

#include "device/cuda/context.hpp"

namespace epccl::device::cuda {

struct Capture {
  uint64_t id = 0;
  CUgraph graph = nullptr;
};
/// Of a stream that is being captured.
Result<Capture> capture_of(const Context& context, CUstream stream);

class GraphObjects {
 public:
  GraphObjects() : gone_(std::make_shared<Gone>()) {}

  /// `object` lives until let_go() after the end of `graph`, and of what was made of it.
  Status keep(const Context& context, CUgraph graph, std::shared_ptr<const void> object);
  void let_go();

 private:
  struct Kept;
  /// Filled where the driver tells of a graph's end, in a thread of its own: nothing of CUDA may be called there, and nothing thrown.
  struct Gone {
    Gone() = default;
    Gone(const Gone&) = delete;
    Gone& operator=(const Gone&) = delete;
    ~Gone();

    std::mutex mutex;
    std::unique_ptr<Kept> last;
  };
  struct Kept {
    std::shared_ptr<const void> object;
    std::shared_ptr<Gone> gone;
    std::unique_ptr<Kept> before{};
  };
  static void graph_is_gone(void* kept);

  const std::shared_ptr<Gone> gone_;
};

}  // namespace epccl::device::cuda
