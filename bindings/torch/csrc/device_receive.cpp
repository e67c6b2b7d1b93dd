#include "device_receive.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/DeviceGuard.h>

#include <utility>

namespace epccl_torch {

DeviceReceive::DeviceReceive(int rank, CallPtr message, at::Tensor host, at::Tensor tensor)
    : Work(rank, message->retrieveOpType()),
      message_(std::move(message)),
      host_(std::move(host)),
      tensor_(std::move(tensor)) {}

bool DeviceReceive::wait(std::chrono::milliseconds timeout) {
  message_->wait(timeout);
  synchronize();
  return true;
}

void DeviceReceive::synchronize() {
  const std::lock_guard lock(mutex_);
  if (!host_.defined() || !message_->isCompleted() || !message_->isSuccess()) return;
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard device(tensor_.device());
  tensor_.copy_(host_, true);
  host_.reset();
}

}  // namespace epccl_torch
