#include "device_call.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <utility>

#include "errors.hpp"
#include "pause.hpp"

namespace epccl_torch {
namespace {

c10::impl::VirtualGuardImpl device_of(const c10::Stream& stream) {
  return {stream.device_type()};
}

}  // namespace

DeviceCall::DeviceCall(int rank, Call::What what, std::shared_ptr<Communicator> communicator,
                       c10::Stream from, c10::Stream on)
    : Work(rank, what.type, what.name, what.inputs),
      what_(std::move(what)),
      communicator_(std::move(communicator)),
      from_(from),
      on_(on),
      over_(std::make_shared<c10::Event>(on.device_type())),
      awaited_(from == on),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{on.device()})) {}

// The program has forgotten the call without waiting for it.
DeviceCall::~DeviceCall() {
  try {
    if (!awaited_) keep_memory_from_reuse();
  } catch (const std::exception& error) {  // the process ends, and the device is gone
    TORCH_WARN("epccl: ", what_.word(), ": ", error.what());
  }
}

// Until the call's stream is through, though the tensors may be gone.
void DeviceCall::keep_memory_from_reuse() const {
  for (const auto* tensors : {&what_.inputs, &what_.outputs})
    for (const at::Tensor& tensor : *tensors)
      device_of(on_).recordDataPtrOnStream(tensor.storage().data_ptr(), on_);
}

std::shared_ptr<const c10::Event> DeviceCall::launched() {
  std::exception_ptr why;
  std::function<void()> recorded;
  {
    const std::lock_guard lock(mutex_);
    over_->record(on_);
    launched_ = true;
    // Of one that was waited for the failure may be known. Who waits for the future alone would not hear of it later.
    why = exception_ = failure();
    recorded = std::exchange(recordFunctionEndCallback_, nullptr);
  }
  // Its callbacks may wait for this call.
  if (why)
    future_->setError(why);
  else
    future_->markCompleted(c10::IValue(what_.outputs));
  if (recorded) recorded();
  return over_;
}

void DeviceCall::failed(const std::exception_ptr& why) {
  future_->setError(why);
  finish(why);
}

std::exception_ptr DeviceCall::failure() const {
  const Communicator::Failure why = communicator_->failure();
  if (why.text.empty()) return nullptr;
  return failure_of(why.reason, what_.word(), ": ", why.text);
}

// What happened to the communicator after this call is none of its business: it is asked once.
bool DeviceCall::is_over() {
  if (completed_) return true;
  if (!launched_ || !over_->query()) return false;
  if (!exception_) exception_ = failure();
  completed_ = true;
  return true;
}

bool DeviceCall::isCompleted() {
  const std::lock_guard lock(mutex_);
  return is_over();
}

bool DeviceCall::isSuccess() const {
  const std::lock_guard lock(mutex_);
  return completed_ && !exception_;
}

bool DeviceCall::wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout && what_.timeout.count() >= 0) timeout = what_.timeout;
  if (timeout != kNoTimeout) wait_on_host(timeout);
  synchronize();
  return true;
}

void DeviceCall::wait_on_host(std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + bounded(timeout);
  for (Pause pause; !isCompleted(); pause.sleep())
    TORCH_CHECK_WITH(DistBackendError, std::chrono::steady_clock::now() < end, "epccl: ", what_.word(),
                     " (number ", what_.sequence, " of its process group) is not complete after ",
                     timeout.count(), " ms; it goes on");
}

void DeviceCall::wait_until_over() {
  for (Pause pause; !isCompleted();) pause.sleep();
}

// No event is asked here: the program may be capturing a graph.
void DeviceCall::synchronize() {
  decltype(what_.inputs) gone;  // after the lock: the last reference to a tensor may wait for the interpreter
  const std::lock_guard lock(mutex_);
  if (exception_ && !launched_) std::rethrow_exception(exception_);
  TORCH_CHECK_WITH(DistBackendError, launched_, "epccl: ", what_.word(), ": its batch has not ended yet");
  const c10::Stream current = device_of(on_).getStream(on_.device());
  if (current != on_) over_->block(current);
  if (!awaited_) {
    if (current != from_) keep_memory_from_reuse();
    awaited_ = true;
    gone.swap(what_.inputs);
  }
  if (exception_) std::rethrow_exception(exception_);
  if (completed_) return;
  if (const std::exception_ptr why = failure()) std::rethrow_exception(why);
}

}  // namespace epccl_torch
