// What EPCCL's copy engines do with CUDA memory, and what is left to the real NCCL. Agreed once, when a communicator is made.
#pragma once

#include <vector>

#include "abi.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// Who runs collectives other than ncclAlltoAll.
enum class Collectives {
  real,
  native_without_real,  // EPCCL, where there is no communicator of the real NCCL
  native,
};

/// Whether EPCCL runs calls with CUDA memory; the same on all ranks of a communicator.
struct NativeAnswers {
  bool alltoall = false;                        // ncclAlltoAll
  bool groups = false;                          // ncclSend and ncclRecv
  Collectives collectives = Collectives::real;  // all others
  bool asked_for_all = false;                   // all three, as all ranks' settings say

  /// Also where there is a real NCCL.
  bool anything() const { return alltoall || groups || collectives == Collectives::native; }
};

/// A communicator of this thread's, about which all its ranks ask.
struct NativeQuestion {
  ncclComm_t comm = nullptr;
  void* context = nullptr;         // whose device is the rank's; none: GPU 0
  int device = EPCCL_CURRENT_GPU;  // that of `context`, or by number
  NativeAnswers answers = {};
};

/// Why there is no communicator of the real NCCL where EPCCL was asked for all.
Status runs_everything();

/// Whether this rank's settings alone leave all CUDA memory to the real NCCL.
bool wants_nothing_native();
/// Whether they leave it none, if the other ranks' do.
bool wants_everything_native();

/// Answers, by EPCCL_NCCL_ALLTOALL, EPCCL_NCCL_GROUPS and EPCCL_NCCL_COLLECTIVES of all ranks: `real` on one means all, `native` on all
/// too; else EPCCL where copy engines can, the other collectives only without the real NCCL. Not in a group. Error: a communicator
/// failed, or a setting is wrong.
Status choose_native(std::vector<NativeQuestion>& all);

}  // namespace epccl::nccl
