#include "api/comm/making.hpp"

#include <utility>

#include "api/groups/group.hpp"
#include "base/caught.hpp"

namespace epccl::api {

Result<std::shared_ptr<Making>> Making::start(epcclComm_t* out, const runtime::CommOptions& options,
                                              int device, HandlePtr parent) {
  auto making = std::make_shared<Making>();
  EPCCL_ASSIGN(making->interrupt_, Interrupt::create());
  making->out_ = out;
  making->parent_ = std::move(parent);
  making->handle_ = std::make_shared<CommHandle>(options, device, making->parent_ != nullptr);
  making->handle_->add_interrupt(making->interrupt_);
  if (making->parent_ != nullptr) making->parent_->add_interrupt(making->interrupt_);
  making->blocking_ = making->parent_ != nullptr ? making->parent_->blocking() : making->handle_->blocking();
  return making;
}

void Making::show() {
  comm_ = add_handle(handle_);
  store(out_, comm_);
}

void Making::begin(const std::function<Status()>& take_place) {
  if (!blocking_) {
    handle_->begin_background();
    if (parent_ != nullptr) parent_->begin_background();
  }
  if (take_place) begun_ = caught(std::cref(take_place));
}

Status Making::run(const std::function<Status()>& work) {
  return end(begun_.ok() ? caught(std::cref(work)) : std::move(begun_));  // how it ended must be told
}

void Making::cancel() {
  if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
  forget();
}

void Making::drop(const Status& why) {
  handle_->remove_interrupt(interrupt_);
  if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
  handle_->fail(why);
}

void Making::stop_waiting() {
  const std::lock_guard lock(mutex_);
  if (!has_met_) interrupt_->fire();
}

Status Making::join(const std::optional<runtime::Gathering>& gathering) {
  if (!gathering) return {};
  EPCCL_ASSIGN(runtime::CommParts parts, runtime::set_up(*gathering, options(), interrupt_));
  {
    const std::lock_guard lock(mutex_);
    has_met_ = true;
  }
  if (parent_communicator_ != nullptr) parts.origin = parent_communicator_->origin();
  auto communicator = std::make_shared<runtime::Communicator>(std::move(parts));
  if (timeout_of_calls_ > 0) communicator->set_timeout(timeout_of_calls_);
  EPCCL_TRY(communicator->begin());
  // From here on the parent's end is nothing to it: what fires the interrupt would end calls of the new communicator.
  if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
  if (interrupt_->fired()) {
    communicator->abort();
    return {Code::remote_error,
            "the communicator was aborted, or its parent revoked, while it was being made"};
  }
  if (handle_->complete(std::move(communicator))) return {};
  return {Code::remote_error, "the communicator was aborted while it was being made"};
}

Status Making::end(Status status) {
  parent_communicator_
      .reset();  // before the parent can be destroyed: who does that shall be the last to have it
  // From here on the new communicator is on its own: aborting the parent is nothing to it.
  handle_->remove_interrupt(interrupt_);
  if (parent_ != nullptr) parent_->remove_interrupt(interrupt_);
  if (!status.ok()) handle_->fail(status);
  if (!status.ok() && blocking_) forget();
  if (!blocking_) {
    handle_->end_background(status);
    if (parent_ != nullptr) parent_->end_background(status);
  }
  return status;
}

void Making::forget() {
  if (comm_ == nullptr) return;
  static_cast<void>(remove_handle(comm_, End::failed));  // gone already where it was aborted
  store(out_, nullptr);
}

namespace {

Job job_of(const MakingPtr& making, const std::function<Status()>& begin,
           const std::function<Status()>& run) {
  Job job;
  job.begin = [making, begin] { making->begin(begin); };
  job.run = [making, run] { return making->run(run); };
  job.end = [making](const Status& why) { static_cast<void>(making->end(why)); };
  job.cancel = [making] { making->cancel(); };
  job.blocking = making->blocking();
  job.drop = [making](const Status& why) { making->drop(why); };
  job.handle = making->handle();
  job.parent = making->parent_handle();
  if (!making->has_parent()) job.interrupt = [making] { making->stop_waiting(); };
  return job;
}

}  // namespace

Status submit_making(const MakingPtr& making, const std::function<Status()>& begin,
                     const std::function<Status()>& run) {
  Status submitted;
  Status thrown = caught([&]() -> Status {
    submitted = submit(job_of(making, begin, run));
    return {};
  });
  if (thrown.ok()) return submitted;
  making->cancel();  // nothing has it
  return thrown;
}

}  // namespace epccl::api
