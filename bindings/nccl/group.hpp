// Groups across both libraries: the calling thread's group is opened in EPCCL at once, in the real NCCL with the first call that
// goes there.
#pragma once

#include <functional>
#include <vector>

#include "abi.hpp"
#include "base/status.hpp"
#include "make_cuda_side.hpp"
#include "real_library.hpp"

namespace epccl::nccl {

bool in_group();

/// Refuses a call that belongs into a group: the open group, if there is one, will do nothing and say this.
ncclResult_t refuse_call(const Status& status);
/// As refuse_call() for one of the libraries' own refusals, whose text is the calling thread's last. Returns `result`.
ncclResult_t note_call(ncclResult_t result);

/// note_call() for EPCCL's calls on CUDA memory: their group is then ended first.
ncclResult_t note_cuda_call(ncclResult_t result);

/// To be called before a call goes to the real library: opens its group if one is open here.
Status join_group(const RealNccl& real);

/// Makes the CUDA side of communicators that were just made: now, or at the end of the open group.
ncclResult_t make_or_keep(std::vector<NewSide> sides);

/// A communicator that the open group, if there is one, will make.
void note_joining(ncclComm_t comm);
/// Whether `comm` is one of the calling thread's open group.
bool joins_at_end(ncclComm_t comm);

/// Which calls go to the real library after the open group's.
enum class Late {
  if_group_ran,  // nothing else of it was wrong
  together,  // as that, in one group of the real library: what waits for other ranks, which may be this thread's
  always,  // together, and also where the group did nothing
  abort,  // as that, but before the group's calls, which may wait for what it ends, unless some of them are the real library's
};
/// Makes the call now, or at the end of the open group.
ncclResult_t now_or_at_end(Late late, std::function<ncclResult_t()> call);

}  // namespace epccl::nccl
