// A stream of its own whose work can be captured into a graph and replayed: for programs that measure. No CUDA types.
#pragma once

#include <memory>

#include "base/status.hpp"

namespace epccl::device {

/// Used by one thread.
class GraphStream {
 public:
  /// Of a GPU of this process.
  static Result<std::unique_ptr<GraphStream>> make(int ordinal);
  virtual ~GraphStream() = default;

  /// A cudaStream_t.
  virtual void* handle() const = 0;
  virtual Status begin_capture() = 0;
  /// The graph takes the place of the one before, which must not be running.
  virtual Status end_capture() = 0;
  virtual Status launch() = 0;
  virtual Status synchronize() = 0;
};

}  // namespace epccl::device
