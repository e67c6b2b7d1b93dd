// One real communicator in the making: what its ranks tell each other, and the steps that all of them take.
//
//   each rank     prepare ---- agree: is there a library? ---- make it ---- agree: has it worked? ---- conclude
//   all ranks               alike, with a reason if not                 alike, or all give up
#pragma once

#include <memory>
#include <vector>

#include "abi.hpp"
#include "base/status.hpp"
#include "cuda_side.hpp"
#include "make_cuda_side.hpp"

namespace epccl::nccl {

/// What a rank tells the first, and the first tells all.
struct Note {
  int failed_rank = -1;
  int code = 0;  // of the real library, where it was that which failed; 0: it was not asked, or not to go on
  char reason[380] = {};
  ncclUniqueId id{};
};

struct Making {
  NewSide what;
  ncclComm_t comm = nullptr;  // NULL: this rank has none, but takes part in making it
  CudaSidePtr side = std::make_shared<CudaSide>();
  int rank = 0, ranks = 1;
  Note mine;                 // then what was agreed
  std::vector<Note> others;  // on rank 0
  RealChildren::Slot real = std::make_shared<ncclComm_t>(nullptr);
};

/// What is to be made for each.
std::vector<Making> to_be_made(std::vector<NewSide> sides);

/// Makes them together: in one group of the real library where there are several. Every rank of each of the communicators comes here, and
/// afterwards each side is ready. Error: the ranks could not agree. (Of a side that failed `failure` tells.)
Status make_all(std::vector<Making>& all);

}  // namespace epccl::nccl
