// The calls of a process group on the tensors of one GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device_call.hpp"
#include "meeting.hpp"

namespace epccl_torch {

using Body = std::function<void(const Line&)>;

/// A communicator of all ranks of the group, and a stream of high priority beside the program's, for calls that are asynchronous.
class DeviceLine {
 public:
  /// Blocks until all ranks have come, each with a GPU of its own choice.
  DeviceLine(const Meeting& meeting, c10::Device device);
  DeviceLine(const DeviceLine&) = delete;
  DeviceLine& operator=(const DeviceLine&) = delete;

  using CallPtr = c10::intrusive_ptr<DeviceCall>;
  /// Gives the body to a stream. What it throws is thrown.
  CallPtr issue(int rank, Call::What what, const Body& body);
  /// The same in two steps: the body may not be known yet.
  CallPtr prepare(int rank, Call::What what);
  /// With EPCCL_TORCH_BLOCKING=1 it is over then.
  void launch(const CallPtr& call, const Body& body);

  /// Whether the GPU is through with all calls, or can do none any more. Any thread.
  bool idle() noexcept;

  c10::Device device() const { return device_; }
  c10::Stream current_stream() const;
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

 private:
  void put_into_stream(const CallPtr& call, const Body& body);

  const c10::Device device_;
  std::mutex mutex_;
  at::Tensor somewhere_;  // memory of the GPU
  std::optional<c10::Stream> stream_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<const c10::Event> last_over_;  // of the last call: those before it are over then, too
};

}  // namespace epccl_torch
