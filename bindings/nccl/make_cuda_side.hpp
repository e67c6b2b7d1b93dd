// Making the real NCCL's communicators beside EPCCL's: all ranks of a communicator alike, or none.
#pragma once

#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "abi.hpp"
#include "base/status.hpp"
#include "cuda_side.hpp"

namespace epccl::nccl {

/// A communicator that was made, and how its CUDA side is.
struct NewSide {
  ncclComm_t* handle = nullptr;  // where EPCCL's is, once it is made; NULL there: this rank has none
  void* context =
      nullptr;  // of the device that was current at the program's call; none: GPU 0, as cudaGetDevice says
  bool needs_id = false;  // the ranks must share a unique id of the real library first
  bool wait = true;       // else it is made in the background
  bool blocking = true;   // the communicator's setting
  Status why_not;         // not ok: there will be no real communicator, which all ranks know
  CudaSidePtr parent;     // of a split or shrink
  /// Makes the real communicator. It must be called also where this rank will have none.
  std::function<ncclResult_t(const RealNccl& real, const ncclUniqueId& id, ncclComm_t* out)> make;
};

/// Makes them, all of the calling thread's together; those of nonblocking communicators in the background. Every rank of each of
/// the communicators must come here. Afterwards each has a CUDA side: a real communicator on all of its ranks, or the reason, on
/// all of its ranks, why there is none. Error: the ranks could not agree, since a communicator itself failed, or the real library failed,
/// which is needed; the communicator is gone then. (One that was made in the background stays, and tells of the failure.)
ncclResult_t make_cuda_sides(std::vector<NewSide> sides);

struct Making;

/// make_cuda_sides() of communicators that a group of the thread makes. Other ranks may make them one by one, and wait for each until it is
/// whole: so where there are several, each is made as soon as its communicator is there, while the group's end waits for others.
class SidesOfGroup {
 public:
  /// Before the group's end, which no call was wrong of. `may_begin`: this thread does not use the real library in between, whose
  /// communicators take one thread at a time.
  SidesOfGroup(std::vector<NewSide> sides, bool may_begin);
  SidesOfGroup(const SidesOfGroup&) = delete;
  SidesOfGroup& operator=(const SidesOfGroup&) = delete;
  ~SidesOfGroup();
  /// After it.
  ncclResult_t finish(bool group_ran);

 private:
  void begin(std::vector<Making> bunch);

  std::vector<NewSide> later_;     // by this thread, at the end
  std::vector<ncclComm_t> comms_;  // of the threads
  std::vector<std::thread> threads_;
  std::vector<std::future<Status>> under_way_;
};

/// The unique id of a job that may have GPUs carries a mark: whoever joins with it makes a CUDA side. So ranks that see
/// different machines choose alike.
void mark_for_cuda(ncclUniqueId& id);
bool marked_for_cuda(const ncclUniqueId& id);
/// The id without the mark, as EPCCL made it.
ncclUniqueId unmarked(ncclUniqueId id);

}  // namespace epccl::nccl
