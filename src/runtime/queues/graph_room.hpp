// What the captured calls of a communicator share, and what their graphs keep alive: memory that peers write, peers' memory, queues.
//
//   in GPU memory, mapped by the node's ranks   pass, count of the host's calls | words [rank][slot], which others write | scratch
//   in pinned host memory                       what the host sees of replays, and says of the calls that it makes
//
// A graph may be there longer than its communicator, and run still while another rank's ends. So each graph holds the room, and the
// rooms of other ranks of the process, whose memory is used as it is.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/held_streams.hpp"
#include "device/kernels/signal_parameters.hpp"
#include "plan/queues.hpp"
#include "transports/shm/node_segment.hpp"

namespace epccl::runtime {

class GraphRoom {
 public:
  static Result<std::shared_ptr<GraphRoom>> make(device::Device& device, int local_size,
                                                 uint64_t scratch_bytes);
  GraphRoom(const GraphRoom&) = delete;
  GraphRoom& operator=(const GraphRoom&) = delete;
  ~GraphRoom();

  /// The room of this process whose memory begins there; null: none.
  static std::shared_ptr<GraphRoom> at(const void* memory);

  device::Device& device() const { return device_; }
  const std::byte* memory() const { return memory_; }
  uint64_t bytes() const { return bytes_; }

  // Parts of a rank's memory, by where it begins; alike on all ranks.
  static uint64_t* pass_in(std::byte* memory) { return reinterpret_cast<uint64_t*>(memory); }
  /// The words that the rank at position `local` of the node writes there.
  static uint64_t* words_in(std::byte* memory, int local) {
    return reinterpret_cast<uint64_t*>(memory + words_offset) + int64_t{local} * transports::node_counters;
  }
  std::byte* scratch_in(std::byte* memory) const { return memory + scratch_offset_; }

  /// What replays say; written by the GPU.
  device::kernels::ReplayReport& report() const { return *report_; }
  /// Of the calls that the host makes in replays.
  device::kernels::HostCallReport& host_calls() const { return *host_calls_; }
  uint64_t* host_call_count() const { return reinterpret_cast<uint64_t*>(memory_ + host_calls_offset); }
  /// Whether a replay has begun, and may be waiting for another rank, or for a call that the host makes. Any thread.
  bool is_replaying() const;
  /// Lets all replays through, now and later. Any thread.
  void give_up();
  /// A call of a graph that the host makes, for as long as the graph may be launched; what graphs keep ends in Device::let_go(). The room must
  /// live longer.
  std::shared_ptr<const void> count_host_call();

  /// Where this process finds a peer's memory, for as long as somebody holds the mapping.
  struct Found {
    std::byte* address;
    std::shared_ptr<const device::MappedMemory> mapping;
  };
  Result<Found> find(int local, const device::MemoryHandle& handle, uint64_t bytes);

  /// The queues of one capture, so that its calls follow each other. They are another's when it is over.
  struct Queues {
    uint64_t capture = 0;
    std::unique_ptr<device::Queue> control;  // the chain of posts and waits
    std::array<std::vector<std::unique_ptr<device::Queue>>, plan::lanes> lanes;
  };
  Result<Queues*> queues_of(uint64_t capture);
  Result<device::QueueEvent*> event(size_t index);

  /// The calls that were captured, for reports. Any thread.
  void name_call(uint64_t call, const std::string& text);
  std::string name_of(uint64_t call) const;

 private:
  static constexpr uint64_t host_calls_offset = 2048, words_offset = 4096;

  explicit GraphRoom(device::Device& device) : device_(device) {}
  Status allocate(int local_size, uint64_t scratch_bytes);
  Status clear(uint64_t bytes);
  bool has_given_up() const;

  struct Mapping {
    int local;
    uint64_t base, generation, offset;
    std::weak_ptr<const device::MappedMemory> memory;  // graphs hold it
  };

  device::Device& device_;
  std::byte* memory_ = nullptr;
  uint64_t bytes_ = 0, scratch_offset_ = 0;
  std::byte* pinned_ = nullptr;
  device::kernels::ReplayReport* report_ = nullptr;
  device::kernels::HostCallReport* host_calls_ = nullptr;
  std::atomic<int> host_calls_in_graphs_{0};
  std::optional<device::HeldStreams::Waiting> replays_;
  std::vector<Mapping> mappings_;
  std::vector<std::unique_ptr<Queues>> queues_;
  std::vector<std::unique_ptr<device::QueueEvent>> events_;
  mutable std::mutex mutex_;
  std::map<uint64_t, std::string> names_;
};

}  // namespace epccl::runtime
