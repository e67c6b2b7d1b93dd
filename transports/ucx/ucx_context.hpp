// The UCP context: devices and memory domains. One for the process, shared by its transports.
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/status.hpp"
#include "transports/ucx/ucx_library.hpp"

namespace epccl::transports::ucx {

class Context {
 public:
  /// The process's context; made when there is none. `expected_peers` is a hint for UCX's choice among RDMA
  /// transports and counts only for the call that makes the context. Safe to call from several threads.
  static Result<std::shared_ptr<Context>> acquire(size_t expected_peers);

  Context(const Library& library, ucp_context_h handle);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Library& library() const { return library_; }
  ucp_context_h handle() const { return handle_; }
  /// Ok where this UCX moves memory of CUDA's GPUs; else why not.
  Status moves_cuda_memory() const;

 private:
  const Library& library_;
  ucp_context_h handle_;
  pid_t owner_;  // a forked child must not free what it shares with its parent
};

}  // namespace epccl::transports::ucx
