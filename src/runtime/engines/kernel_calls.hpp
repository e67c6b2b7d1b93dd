// Calls on token rows that kernels of a device make: inside a node they read and write peers' memory themselves. On one node a call
//
//   thread   tells its node where its rows lie, and waits until all ranks have
//   queue    (waits for streams that have yet to come: executor/queued_behind.hpp)
//            kernels that read or write peers' rows
//            says that this rank is through (its done counter), and waits until all ranks are
//            kernels on its own rows
//   thread   waits for the queue
//
// A wait is queued when what ends it has been, by whichever rank (queues/queue_executor.hpp). A rank that gives up lets all
// queues of the node through, so no GPU is left waiting. Where there are several nodes a plan says what is queued and sent when
// (queues/device_executor.hpp).
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "runtime/engines/copy_engines.hpp"
#include "runtime/executor/call_name.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/executor/row_buffers.hpp"
#include "runtime/queues/device_program.hpp"
#include "runtime/queues/hand_outs.hpp"
#include "runtime/queues/near_words.hpp"
#include "runtime/queues/queued_words.hpp"
#include "runtime/queues/row_feed.hpp"

namespace epccl::runtime {

class KernelCalls {
 public:
  KernelCalls(device::Device& device, const topology::Cluster& cluster, int rank,
              transports::NodeMemory& node, FailureMonitor& monitor, Executor& executor,
              CopyEngines& engines);
  KernelCalls(const KernelCalls&) = delete;
  KernelCalls& operator=(const KernelCalls&) = delete;
  ~KernelCalls() = default;

  /// Makes now what calls need of the device.
  Status prepare();

  /// Whether kernels make a call of this use; the same on every rank. `why` for reports.
  EngineChoice choose(EngineUse use) const;

  /// While it lives run() queues calls behind what the stream had, if that was given.
  class Begun {
   public:
    Begun(KernelCalls& calls, const QueuedBehind* behind) : calls_(calls) { calls_.behind_ = behind; }
    Begun(const Begun&) = delete;
    Begun& operator=(const Begun&) = delete;
    ~Begun() { calls_.behind_ = nullptr; }

   private:
    KernelCalls& calls_;
  };
  /// Calls from now on are made as it was chosen.
  [[nodiscard]] Begun begin(const EngineChoice& choice, const QueuedBehind* behind = nullptr) {
    make_as(choice);
    return {*this, behind};
  }

  device::Device& device() const { return device_; }

  /// Copies, and waits for them.
  Status copy(std::span<const device::CopyWork> copies);
  /// Queues work that waits for no other rank, and waits for it.
  Status run_alone(const std::function<Status(device::Queue& queue)>& work);

  /// `peers`: by local position, this rank's own as well.
  using Submit = std::function<Status(device::Queue& queue, std::span<const PeerRows> peers)>;
  /// What a call queues.
  struct Work {
    std::function<Status(device::Queue& queue)> before;  // before peers use this rank's rows; null: nothing
    Submit across;                                       // what uses peers' rows
    Submit after;  // when all ranks are through with that; null: nothing
  };
  /// One call. Peers can use what `rows` names: it must be memory that they can map. When this returns nothing of this rank moves.
  Status run(const RowBuffers& rows, const std::string& text, CallProgress* progress, const Work& work);

  // Of several nodes, where calls have plans, as on the host:

  bool across_nodes() const { return cluster_.nodes() > 1; }
  /// Brings what every rank has, `bytes`, to `all` of every rank, as algorithms::build_table_exchange() lays it out. Peers can map `all`. On failure
  /// as run_plan().
  Status gather(const std::byte* own, std::byte* all, uint64_t bytes, uint64_t chunk_bytes,
                const CallName& name);
  Result<DeviceProgram> make_program(const plan::RankPlan& plan) const;
  /// Goes on with other tables.
  Status use_tables(DeviceProgram& program, std::shared_ptr<const plan::RowTables> tables) const;
  /// Where relayed rows go, by the program's present tables.
  HandOutTable hand_out_table(const DeviceProgram& program) const {
    return make_hand_out_table(program, cluster_);
  }
  struct PlannedCall {
    const DeviceProgram& program;
    TablesThere tables;
    const RowBuffers& rows;
    /// Of them: what peers use, in memory that they can map.
    const RowBuffers& shown;
    Spread spread = {};
  };
  /// One call. When this returns nothing of this rank moves; on failure the network's messages have yet to be cancelled.
  Status run_plan(const PlannedCall& planned, const CallName& name, CallProgress* progress);

  /// A stream that is being captured into a graph, and what that shall keep.
  struct IntoGraph {
    device::Queue* stream = nullptr;
    std::shared_ptr<const void> kept;
  };
  /// The same call as a part of the graph, when Communicator::prepare_captures() was called: nothing runs, but the node meets.
  Status capture(const IntoGraph& graph, const RowBuffers& rows, const std::string& text, const Work& work);

 private:
  void make_as(const EngineChoice& choice) {
    by_cores_ = choice.by_cores;
    queue_ = by_cores_ ? cores_.get() : engine_.get();
  }
  std::vector<std::shared_ptr<const void>> rooms_here(const Call& call) const;
  Call call_on(const RowBuffers& rows, const std::string& text, const CallDevice& on);
  Status run_call(const Call& call, const Work& work);
  Status queue_call(const Call& call, const Work& work, std::span<const PeerRows> peers);
  Status come_behind(const Call& call, const Work& work);
  Status await_streams(const Call& call);
  Status run_planned(const Call& call, const PlannedCall& planned);
  Result<std::vector<PeerRows>> find_peers(const Call& call);
  using FindBuffer = std::function<Result<std::byte*>(int local, const transports::BufferRef& buffer)>;
  Result<std::vector<PeerRows>> find_rows(const Call& call, const FindBuffer& find_mapped);
  Status queue_parting(const Call& call);
  Status wait_for_peer(const Call& call, int local, int slot, const char* what);
  Status queue_waits();
  Status wait_for_queue(const Call& call);
  Status wait_for_word(const Call& call, const device::SignalWord& word, uint64_t value);
  Waiter::Situation describe(const Call& call) const;
  Waiter::Situation waiting_for(const Call& call, int local, const char* what) const;
  int rank_at(int local) const { return cluster_.rank_at(cluster_.node_of(rank_), local); }

  device::Device& device_;
  const topology::Cluster& cluster_;
  const int rank_;
  transports::NodeMemory& node_;
  FailureMonitor& monitor_;
  Executor& executor_;
  CopyEngines& engines_;
  // Both run kernels; what is copied beside them engines copy, or compute cores (null: the device cannot).
  std::unique_ptr<device::Queue> engine_, cores_;
  device::Queue* queue_ = nullptr;  // one of them
  bool by_cores_ = false;
  const QueuedBehind* behind_ = nullptr;  // of the current call
  std::string text_;                      // of the current call
  NearWords near_;                        // of the current call
  const QueuedWords words_;
  std::vector<device::WordValue> waits_;  // that are to be queued together
  bool peers_have_buffers_ = false;       // of the current call: its ranks have met
};

}  // namespace epccl::runtime
