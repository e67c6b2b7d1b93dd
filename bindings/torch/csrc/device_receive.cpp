#include "device_receive.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <utility>

namespace epccl_torch {
namespace {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

DeviceReceive::DeviceReceive(int rank, CallPtr message, at::Tensor host, at::Tensor tensor)
    : Work(rank, message->retrieveOpType()),
      message_(std::move(message)),
      host_(std::move(host)),
      tensor_(std::move(tensor)),
      from_(current_stream(tensor_.device())),
      issued_(from_.device_type()),
      copied_(from_.device_type()) {
  issued_.record(from_);
}

bool DeviceReceive::wait(std::chrono::milliseconds timeout) {
  message_->wait(timeout);
  put_into_tensor();
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceReceive::getFuture() {
  TORCH_CHECK(
      false, "epccl: a message that is received by itself into a tensor of a GPU has no future: call wait()");
}

void DeviceReceive::put_into_tensor() {
  const std::lock_guard lock(mutex_);
  const at::AutoDispatchBelowADInplaceOrView
      as_the_program;  // also where the tensor is one of inference mode
  const c10::DeviceGuard device(tensor_.device());
  const c10::Stream current = current_stream(tensor_.device());
  if (!host_.defined()) return copied_.block(current);
  if (current != from_) {  // where the tensor may still be read, and its memory is used again
    issued_.block(current);
    c10::impl::VirtualGuardImpl(from_.device_type())
        .recordDataPtrOnStream(tensor_.storage().data_ptr(), current);
  }
  tensor_.copy_(host_, true);
  host_.reset();
  copied_.record(current);
}

}  // namespace epccl_torch
