// The host as a device: its queues are done by threads of this process (host_engines.hpp).
#pragma once

#include <functional>
#include <memory>

#include "device/device.hpp"

namespace epccl::device {

class HostDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::host; }
  int ordinal() const override { return 0; }
  std::string description() const override;
  int copy_engines() const override;
  int fewest_blocks(const Demand&) const override { return 1; }
  int max_reduce_sources() const override { return 1 << 16; }

  Result<void*> allocate(MemoryKind kind, uint64_t bytes) override;
  Status free(void* address) override;
  std::optional<MemoryInfo> info(const void* address) const override;
  using Device::export_memory;
  Result<MemoryHandle> export_memory(const void* address, uint64_t bytes,
                                     const std::vector<pid_t>* readers) const override;
  Result<std::unique_ptr<MappedMemory>> import_memory(const MemoryHandle& handle) override;

  /// Nothing to do: all memory is the host's.
  Status make_words_visible(void* memory, uint64_t bytes) override;
  using Device::hide_words;
  void hide_words(void* memory, std::shared_ptr<const void> mapping) override;

  Result<std::unique_ptr<Queue>> make_queue(QueueKind kind) override;
  Result<std::unique_ptr<Queue>> borrow_stream(void* stream) override;
  Result<std::unique_ptr<QueueEvent>> make_event() override;

  /// Calls `posted` after every post of a queue to a word in [memory, memory + bytes), from the queue's thread: for who
  /// sleeps until then. Until hide_words(memory), which waits for calls under way.
  using Posted = std::function<void(const SignalWord& word)>;
  void tell_of_posts(void* memory, uint64_t bytes, Posted posted);
  void told(const SignalWord& word) const;
};

/// The process's.
HostDevice& the_host();

}  // namespace epccl::device
