// A single message for a GPU's tensor.
#pragma once

#include "work.hpp"

namespace epccl_torch {

/// Single messages are matched by tag, and pass host memory, so that they wait for nothing but their partner: not for the GPU's streams,
/// which may be waiting for another rank. Who waits for the message puts it where it belongs, in the order of his stream.
class DeviceReceive : public c10d::Work {
 public:
  /// `message` is received into `host`, and goes to `tensor`.
  DeviceReceive(int rank, CallPtr message, at::Tensor host, at::Tensor tensor);

  bool isCompleted() override { return message_->isCompleted(); }
  bool isSuccess() const override { return message_->isSuccess(); }
  std::exception_ptr exception() const override { return message_->exception(); }
  int sourceRank() const override { return message_->sourceRank(); }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream() override { wait(); }
  std::vector<at::Tensor> result() override { return {tensor_}; }

 private:
  const CallPtr message_;
  at::Tensor host_;  // undefined once it was put into the tensor
  at::Tensor tensor_;
};

}  // namespace epccl_torch
