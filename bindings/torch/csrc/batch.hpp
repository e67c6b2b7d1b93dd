// Calls that c10d gives as one piece of work (startCoalescing() ... endCoalescing()).
#pragma once

#include <map>
#include <vector>

#include "device_line.hpp"

namespace epccl_torch {

/// Several pieces of work as one.
class Together : public c10d::Work {
 public:
  Together(int rank, std::vector<c10::intrusive_ptr<c10d::Work>> parts);
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream() override;
  std::vector<at::Tensor> result() override;
  /// Of all results, once all parts' futures are complete; with the first error. Throws where a part has none: DeviceReceive.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  /// The same, and where a part is a GPU's call.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
#if EPCCL_PYTORCH_AT_LEAST(15)
  /// The longest of the parts'.
  std::chrono::milliseconds getTimeout() const override;
#endif

 private:
  const std::vector<c10::intrusive_ptr<c10d::Work>> parts_;
};

/// Sends and receives of one GPU's tensors, which begin together: none waits for the one before, so there is no order that deadlocks.
class MessageBatch {
 public:
  MessageBatch(DeviceLine& line, int rank, uint64_t sequence, std::chrono::milliseconds patience);

  /// It is all one call, which begins when the batch ends.
  DeviceLine::CallPtr add(bool is_send, const at::Tensor& tensor, int peer);
  DeviceLine::CallPtr launch();
  /// Instead of launch(): its call fails.
  void drop(const std::exception_ptr& why) { call_->failed(why); }

 private:
  struct Message {
    bool is_send;
    at::Tensor tensor;
    int peer;
  };
  DeviceLine& line_;
  std::vector<Message> messages_;
  const DeviceLine::CallPtr call_;
};

}  // namespace epccl_torch
