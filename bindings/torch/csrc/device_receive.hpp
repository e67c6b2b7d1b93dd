// A single message for a GPU's tensor.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "work.hpp"

namespace epccl_torch {

/// Single messages are matched by tag, and pass host memory, so that they wait for nothing but their partner: not for the GPU's streams,
/// which may be waiting for another rank. Who waits for the message puts it where it belongs, in the order of his stream, and after
/// what the stream had in which the receive was issued.
class DeviceReceive : public c10d::Work {
 public:
  /// `message` is received into `host`, and goes to `tensor`.
  DeviceReceive(int rank, CallPtr message, at::Tensor host, at::Tensor tensor);

  bool isCompleted() override { return message_->isCompleted(); }
  bool isSuccess() const override { return message_->isSuccess(); }
  std::exception_ptr exception() const override { return message_->exception(); }
  int sourceRank() const override { return message_->sourceRank(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override { wait(); }
  void blockCurrentStream() override { wait(); }
  std::vector<at::Tensor> result() override { return {tensor_}; }
  std::chrono::milliseconds getTimeout() const EPCCL_OVERRIDES_SINCE_2_15 { return message_->getTimeout(); }
  /// There is none: the message is put into the tensor in the order of the stream that waits, and a future would not know which one.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  void put_into_tensor();

  const CallPtr message_;
  at::Tensor host_;  // undefined once it was put into the tensor
  at::Tensor tensor_;
  const c10::Stream from_;
  c10::Event issued_, copied_;
};

}  // namespace epccl_torch
