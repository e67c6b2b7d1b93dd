// What EPCCL's copy engines do with CUDA memory, and what is left to the real NCCL. Agreed once, when a communicator is made.
#pragma once

#include <vector>

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// A communicator of this thread's, about which all its ranks ask.
struct NativeQuestion {
  ncclComm_t comm = nullptr;
  void* context = nullptr;         // whose device is the rank's; none: GPU 0
  int device = EPCCL_CURRENT_GPU;  // that of `context`, or by number
  // The answers, the same on all ranks: whether EPCCL runs ...
  bool alltoall = false;  // ncclAlltoAll
  bool groups = false;    // ncclSend and ncclRecv
};

/// Whether this rank's settings alone leave all CUDA memory to the real NCCL.
bool wants_nothing_native();

/// Answers, by EPCCL_NCCL_ALLTOALL and EPCCL_NCCL_GROUPS of all ranks: `real` on one means all, `native` on all too; else EPCCL where
/// copy engines can. Not in a group. Error: a communicator failed, or a setting is wrong.
Status choose_native(std::vector<NativeQuestion>& all);

}  // namespace epccl::nccl
