// Who runs ncclAlltoAll with CUDA memory: EPCCL's copy engines or the real NCCL. Agreed once, when a communicator is made.
#pragma once

#include <vector>

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// A communicator of this thread's, about which all its ranks ask.
struct AlltoallQuestion {
  ncclComm_t comm = nullptr;
  void* context = nullptr;         // whose device is the rank's
  int device = EPCCL_CURRENT_GPU;  // that of `context`, or by number
  bool is_native = false;          // the answer, the same on all ranks
};

/// Answers, by EPCCL_NCCL_ALLTOALL of all ranks: `real` on one means all, `native` on all too; else EPCCL where copy engines can.
/// Not in a group. Error: a communicator failed, or the setting is wrong.
Status choose_alltoall(std::vector<AlltoallQuestion>& all);

}  // namespace epccl::nccl
