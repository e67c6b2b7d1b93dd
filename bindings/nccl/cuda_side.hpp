// What stands beside a communicator for CUDA memory: a communicator of the real NCCL, or why there is none. Communicators of
// jobs without GPUs have no such side.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"
#include "real_library.hpp"

namespace epccl::nccl {

/// A pre-multiplied sum as both libraries know it.
struct BothOps {
  std::optional<ncclRedOp_t> real;
  std::optional<int> native;
};

struct CudaSide {
  ncclComm_t real = nullptr;
  Status why_not;                     // not ok: there is no `real`
  const RealNccl* library = nullptr;  // with `real`
  std::mutex mutex;                   // of what follows
  std::map<int, BothOps> ops;         // by the number that the program was given
  int next_op = ncclNumOps;
};
using CudaSidePtr = std::shared_ptr<CudaSide>;

void add_cuda_side(ncclComm_t comm, CudaSidePtr side);
/// Null: the communicator has none.
CudaSidePtr find_cuda_side(ncclComm_t comm);
CudaSidePtr take_cuda_side(ncclComm_t comm);

/// The side of a communicator that has a real communicator, else null.
CudaSidePtr find_real_side(ncclComm_t comm);

}  // namespace epccl::nccl
