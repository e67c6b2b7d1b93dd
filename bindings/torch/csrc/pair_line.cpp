#include "pair_line.hpp"

#include <c10/util/Exception.h>

#include <utility>

namespace epccl_torch {

PairLine::PairLine(Meeting meeting) : meeting_(std::move(meeting)) {
  meeting_.go_on = [this, of_group = std::move(meeting_.go_on)] {
    TORCH_CHECK_WITH(DistBackendError, !aborted_, "epccl: ", meeting_.name,
                     ": this process group was aborted or destroyed");
    of_group();
  };
}

epcclComm_t PairLine::open() {
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK_WITH(DistBackendError, !aborted_, "epccl: this process group was aborted");
    if (communicator_) return communicator_->handle();
  }
  auto made = meet(meeting_);
  const std::lock_guard lock(mutex_);
  communicator_ = std::move(made);
  if (aborted_) communicator_->abort();
  return communicator_->handle();
}

void PairLine::abort() noexcept {
  std::shared_ptr<Communicator> made;
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    made = communicator_;
  }
  if (made) made->abort();
}

}  // namespace epccl_torch
