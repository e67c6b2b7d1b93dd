// Queues and events of the host device.
#pragma once

#include <memory>

#include "device/device.hpp"
#include "device/host/host_engines.hpp"

namespace epccl::device {

class HostQueueEvent : public QueueEvent {
 public:
  Result<bool> complete() const override;

  /// A new place, in place of an earlier one.
  std::shared_ptr<HostMark> mark();
  /// Null: never recorded.
  std::shared_ptr<const HostMark> last() const { return mark_; }

 private:
  std::shared_ptr<HostMark> mark_;
};

/// Done by the engines.
class HostQueue : public Queue {
 public:
  HostQueue(std::shared_ptr<HostEngines> engines, QueueKind kind);
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;
  ~HostQueue() override;

  Status copy(std::span<const CopyWork> copies) override;
  Status reduce(const ReduceWork& work) override;
  Status post(SignalWord& word, uint64_t value) override;
  Status wait(const SignalWord& word, uint64_t value) override;
  Status record(QueueEvent& event) override;
  Status wait(const QueueEvent& event) override;
  void set_blocks(int /*blocks*/) override {}
  Status synchronize() override;
  Result<bool> idle() override;
  Status failure() const override;

 private:
  const std::shared_ptr<HostEngines> engines_;
  const std::shared_ptr<WorkLine> line_;
  const QueueKind kind_;
};

/// Work of a stream of epcclStreamCreate(); null: of the calling thread, which does it at once.
Result<std::unique_ptr<Queue>> borrow_host_stream(void* stream);

}  // namespace epccl::device
