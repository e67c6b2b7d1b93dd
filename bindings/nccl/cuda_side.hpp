// What stands beside a communicator for CUDA memory: a communicator of the real NCCL, or why there is none. Communicators of
// jobs without GPUs have no such side.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"
#include "native_choice.hpp"
#include "real_children.hpp"
#include "real_library.hpp"

namespace epccl::nccl {

/// A pre-multiplied sum as both libraries know it.
struct BothOps {
  std::optional<ncclRedOp_t> real;
  std::optional<epcclRedOp_t> native;
};

/// A thread that makes the sides of nonblocking communicators.
struct Maker {
  std::thread thread;
  std::once_flag joined;
  std::atomic<bool> stop{false};
  std::atomic<bool> is_over{false};  // it uses nothing any more

  Maker() = default;
  Maker(const Maker&) = delete;
  Maker& operator=(const Maker&) = delete;
  /// Where a rank gets no communicator, nobody but the thread itself knows it.
  ~Maker() {
    if (thread.joinable()) thread.detach();
  }

  /// Waits for it; any number of threads may.
  void join() {
    std::call_once(joined, [this] { thread.join(); });
  }
};

struct CudaSide {
  std::atomic<bool> ready{false};  // what follows is set
  ncclComm_t real = nullptr;
  Status why_not;                     // not ok: there is no `real`
  Status failure;                     // not ok: making it failed, and with it the communicator
  const RealNccl* library = nullptr;  // with `real`
  void* context = nullptr;            // that was current when it was made; null: none
  std::optional<int> device;          // that ncclCommInitAll was given; else the context's
  NativeAnswers native;
  bool runs_collectives() const {
    return native.collectives == Collectives::native ||
           (native.collectives == Collectives::native_without_real && real == nullptr);
  }

  bool blocking = true;          // the communicator
  std::shared_ptr<Maker> maker;  // set where it was made in the background
  RealChildren children;         // of `real`
  std::atomic<bool> real_revoked{false};

  std::mutex mutex;            // of what follows
  std::map<int, BothOps> ops;  // by the number that the program was given
};
using CudaSidePtr = std::shared_ptr<CudaSide>;

void add_cuda_side(ncclComm_t comm, CudaSidePtr side);
/// Null: the communicator has none.
CudaSidePtr find_cuda_side(ncclComm_t comm);
CudaSidePtr take_cuda_side(ncclComm_t comm);

/// The context of some side, null where none has one: what the driver can be asked with about memory of whichever.
void* context_of_any_side();

/// Those that are made in the background now, by communicator.
std::vector<std::pair<ncclComm_t, CudaSidePtr>> sides_in_making();

/// The side of a communicator that has a real communicator (and it is ready), else null.
CudaSidePtr find_real_side(ncclComm_t comm);

/// Error, for the call `name`: the communicator is being made, or another is of it, in the background.
Status check_at_rest(const char* name, CudaSide& side);

}  // namespace epccl::nccl
