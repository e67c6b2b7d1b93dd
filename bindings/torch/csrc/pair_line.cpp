#include "pair_line.hpp"

#include <c10/util/Exception.h>

#include <utility>

namespace epccl_torch {

PairLine::PairLine(Meeting meeting) : meeting_(std::move(meeting)) {
  meeting_.give_up = aborted_;
}

epcclComm_t PairLine::open() {
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, !*aborted_, "epccl: this process group was aborted");
    if (communicator_) return communicator_->handle();
  }
  auto made = meet(meeting_);
  const std::lock_guard lock(mutex_);
  communicator_ = std::move(made);
  if (*aborted_) communicator_->abort();
  return communicator_->handle();
}

void PairLine::abort() noexcept {
  std::shared_ptr<Communicator> made;
  {
    const std::lock_guard lock(mutex_);
    *aborted_ = true;
    made = communicator_;
  }
  if (made) made->abort();
}

}  // namespace epccl_torch
