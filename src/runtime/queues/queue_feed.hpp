// What a plan's steps are to a device's queues: copies, gathered into lists, and reductions.
#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/executor/call_progress.hpp"
#include "runtime/executor/queued_behind.hpp"
#include "runtime/queues/near_words.hpp"
#include "runtime/queues/queue_program.hpp"
#include "runtime/queues/row_feed.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

/// Who does the work of a call's queues.
struct Movers {
  int blocks = 0;  // Queue::set_blocks() for reductions and copies by cores
  /// By local position: whose buffers lie on one device, inside which engines may leave copies to compute cores; empty: they leave none.
  std::vector<bool> may_use_cores;
};

/// One run of a program.
struct QueueCall {
  uint64_t sequence = 0;  // 1, 2, ...: the same on every rank
  std::string text;       // for reports
  /// Where the buffers of the node's ranks lie, by local position and plan::Buffer; null: the plan does not use it from here.
  std::vector<std::array<std::byte*, 3>> buffers;
  const device::Reduction* reduction = nullptr;  // where the plan reduces
  Movers movers;
  const RowCall* rows = nullptr;         // where the plan moves token rows
  CallProgress* progress = nullptr;      // who is told how far the call is; null: nobody asks
  bool by_cores = false;                 // copies are kernels, whatever the program says
  const QueuedBehind* behind = nullptr;  // as in Call
  /// Ranks whose buffers the queues use, and whose streams have yet to come.
  std::vector<int> awaited = {};
  NearWords near = {};
  uint16_t meaning = 0;  // as in Call
};

/// The kind of queue that does a lane's steps.
device::QueueKind kind_of(plan::Lane lane, bool by_cores);

class QueueFeed {
 public:
  struct Limits {
    uint64_t copy_bytes = 512 << 20;  // a larger copy is cut, if it is in one piece
    size_t copies = 8;                // given to copy engines at once
  };

  QueueFeed(device::Device& device, const topology::Cluster& cluster, const Limits& limits)
      : device_(device), cluster_(cluster), limits_(limits) {}

  /// `program`, `call` and the queues, one for each of the program's, stay until all is fed.
  void begin(const QueueProgram& program, const QueueCall& call, const std::vector<device::Queue*>& queues);
  /// The queue gets it now, or with others before its next flush(). `begins_list`: with none of those before it.
  Status copy(uint32_t queue, const plan::Step& step, bool begins_list);
  /// `also`: copies of the result, which the sum makes as well.
  Status reduce(uint32_t queue, const plan::Step& step, std::span<const plan::Step> also = {});
  Status flush(uint32_t queue);
  Status flush_all();

 private:
  bool by_cores() const { return program_->by_cores || call_->by_cores; }
  std::byte* address(const plan::Location& location) const;
  bool may_use_cores(const plan::Step& copy) const;
  Status add(uint32_t queue, const device::CopyWork& work);

  device::Device& device_;
  const topology::Cluster& cluster_;
  const Limits limits_;
  const QueueProgram* program_ = nullptr;
  const QueueCall* call_ = nullptr;
  std::vector<device::Queue*> queues_;
  std::vector<std::vector<device::CopyWork>> gathered_;  // by queue: copies not yet given to it
};

}  // namespace epccl::runtime
