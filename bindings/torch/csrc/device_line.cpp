#include "device_line.hpp"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace epccl_torch {
namespace {

bool blocks() {
  static const bool value = [] {
    const char* const text = std::getenv("EPCCL_TORCH_BLOCKING");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return value;
}

}  // namespace

DeviceLine::DeviceLine(const Meeting& meeting, c10::Device device) : device_(device) {
  const c10::DeviceGuard current(device_);
  somewhere_ = at::empty({64}, at::dtype(at::kByte).device(device_));
  // Of another priority than the program's: streams of one priority share hardware queues, in which one that waits for other ranks holds back
  // the rest.
  stream_ =
      c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_, /*isHighPriority=*/true);
  communicator_ = meet(meeting);
  // Nothing moves here. But a library that knows nothing of GPUs would take their addresses for the host's.
  const epcclResult_t known =
      epcclAllReduce(somewhere_.const_data_ptr(), somewhere_.mutable_data_ptr(), 0, epcclUint8, epcclSum,
                     communicator_->handle(), stream_->native_handle());
  TORCH_CHECK_WITH(DistBackendError, known == epcclSuccess, "epccl: tensors of ", device_,
                   ": the library cannot use this GPU (docs/cuda.md): ", epcclGetLastError(nullptr));
}

c10::Stream DeviceLine::current_stream() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

DeviceLine::CallPtr DeviceLine::prepare(int rank, Call::What what) {
  const c10::Stream from = current_stream();
  const c10::Stream on = what.async ? *stream_ : from;
  return c10::make_intrusive<DeviceCall>(rank, std::move(what), communicator_, from, on);
}

void DeviceLine::launch(const CallPtr& call, const Body& body) {
  put_into_stream(call, body);
  if (blocks()) call->wait_until_over();
}

void DeviceLine::put_into_stream(const CallPtr& call, const Body& body) {
  const std::lock_guard lock(mutex_);
  const c10::Stream from = call->from(), on = call->on();
  if (on != from) {
    c10::Event before(device_.type());
    before.record(from);
    before.block(on);
  }
  // What the body allocates, it allocates for this stream.
  const c10::StreamGuard stream(on);
  const at::AutoDispatchBelowADInplaceOrView as_the_program;  // also where tensors are of inference mode
  try {
    // The library takes the call, and lets the stream through with undefined results: who waits for the future alone would never hear.
    if (const std::exception_ptr why = call->failure()) std::rethrow_exception(why);
    body({communicator_->handle(), on.native_handle(), somewhere_.mutable_data_ptr()});
  } catch (...) {
    call->failed(std::current_exception());
    throw;
  }
  last_over_ = call->launched();
}

bool DeviceLine::idle() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;  // a call is being launched
  try {
    return last_over_ == nullptr || last_over_->query();
  } catch (const std::exception&) {
    return true;  // the GPU's context is lost, or the call is of a graph
  }
}

DeviceLine::CallPtr DeviceLine::issue(int rank, Call::What what, const Body& body) {
  CallPtr call = prepare(rank, std::move(what));
  launch(call, body);
  return call;
}

}  // namespace epccl_torch
