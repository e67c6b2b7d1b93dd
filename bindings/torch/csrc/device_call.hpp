// A call on tensors of a GPU: in the order of its streams, as everything that PyTorch does there.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>

#include "communicator.hpp"
#include "work.hpp"

namespace epccl_torch {

/// What the call has given to its stream is over when an event there is. Streams and events are c10's, so nothing of CUDA is needed to
/// build this.
///
///     program's stream  --+--------------------------> wait() +-->     after the first calls the program's thread waits for nothing
///     call's stream       +--> epccl call --> event ----------+
///
/// A call that is not asynchronous runs in the program's stream itself.
class DeviceCall : public c10d::Work {
 public:
  /// `from`: the program's stream, `on`: the call's.
  DeviceCall(int rank, Call::What what, std::shared_ptr<Communicator> communicator, c10::Stream from,
             c10::Stream on);
  ~DeviceCall() override;

  c10::Stream from() const { return from_; }
  c10::Stream on() const { return on_; }
  /// One more that it reads or writes; before it is launched.
  void add(const at::Tensor& tensor) { what_.outputs.push_back(tensor); }
  /// All of it is in its stream, which is the current one; or it has failed already, as its communicator says. Returns what tells when the
  /// stream is through with it.
  std::shared_ptr<const c10::Event> launched();
  /// Nothing was given to the stream, or not all.
  void failed(const std::exception_ptr& why);
  /// What ended calls of the communicator: null while nothing has.
  std::exception_ptr failure() const;

  /// In the calling thread, however long it takes.
  void wait_until_over();

  bool isCompleted() override;
  bool isSuccess() const override;
  /// Makes the current stream wait. With a timeout the calling thread waits before, and is told what has failed.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }
  std::vector<at::Tensor> result() override { return what_.outputs; }
  uint64_t getSequencenumber() const override { return what_.sequence; }
  std::chrono::milliseconds getTimeout() const EPCCL_OVERRIDES_SINCE_2_15 { return what_.patience; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  bool is_over();
  void wait_on_host(std::chrono::milliseconds timeout);
  void keep_memory_from_reuse() const;

  Call::What
      what_;  // with its tensors: their memory must not be used for anything else before the call is over
  const std::shared_ptr<Communicator> communicator_;
  const c10::Stream from_, on_;
  const std::shared_ptr<c10::Event> over_;
  bool launched_ = false;
  bool awaited_ = false;  // by the stream in which the tensors' memory will be used again
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace epccl_torch
