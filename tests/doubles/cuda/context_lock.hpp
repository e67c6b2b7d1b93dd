// The lock that a driver's calls share, with FAKE_CUDA_CONTEXT_LOCK=1:
//
//   most calls            share it, for as long as they take
//   to free, to unmap, to unregister, to make a stream, to load a module, the first launch of a kernel that is not loaded
//                         have it alone, and wait meanwhile until all that the context's streams were given is through
//   to allocate and to register memory
//                         share it; as those before where "alone_allocations" is set
//   to wait for a stream or the context
//                         wait without it
//
// So a call of the second kind stops all others of the process while a stream waits for a word. Without the switch nothing is locked.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace fake_cuda {

class ContextLock {
 public:
  enum class Kind : uint8_t { shared, alone };
  explicit ContextLock(Kind kind);
  ContextLock(const ContextLock&) = delete;
  ContextLock& operator=(const ContextLock&) = delete;
  ~ContextLock();

 private:
  const bool is_alone_;
  bool is_outermost_ = false;  // calls of the double call each other
};

}  // namespace fake_cuda
