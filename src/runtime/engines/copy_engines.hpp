// Calls of one communicator that copy engines make: whether they shall, and how.
//
//   who calls    tells the node where its buffers lie, and waits until all ranks have (they sleep meanwhile)
//   plan         direct where all buffers that peers need are mapped, else through scratch; the same on every rank
//   queues       submitted at once; the calling thread (a stream's, or the user's) sleeps until they are through. On several nodes
//                that thread drives them instead, and the network (device_executor.hpp)
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/status.hpp"
#include "runtime/engines/captured_calls.hpp"
#include "runtime/engines/engine_use.hpp"
#include "runtime/engines/peer_buffers.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/executor/program_cache.hpp"
#include "runtime/queues/queue_executor.hpp"

namespace epccl::runtime {

class AcrossNodes;
struct PinnedStage;

class CopyEngines {
 public:
  CopyEngines(device::Device& device, const topology::Cluster& cluster, int rank,
              transports::NodeMemory& node, FailureMonitor& monitor, Executor& executor,
              const EngineConfig& config);
  CopyEngines(const CopyEngines&) = delete;
  CopyEngines& operator=(const CopyEngines&) = delete;
  ~CopyEngines();

  /// What this rank's queues reach; alike on all ranks.
  struct Reach {
    bool direct = false;  // peers' buffers, else only their scratch
    bool sums_read_peers =
        false;  // sums had better read peers' memory where it lies than what copies have fetched of it
  };
  /// Makes a rank's plan.
  using Build = std::function<Result<plan::RankPlan>(const Reach& reach, int rank)>;

  /// Makes now what calls need, since to allocate on a device may wait for what it does, and that may be waiting for a call.
  Status prepare();
  /// The same for a call that is made as chosen: the queues that compute cores copy in are only made where they are used. Before the call's
  /// turn. Any thread.
  Status prepare_for(const EngineChoice& choice);

  /// The same for calls that are captured into graphs; null before.
  Status prepare_captures();
  CapturedCalls* captures() { return captured_.get(); }

  /// Whether compute cores can do what engines would: with kernels, where all ranks knew their GPU, and the node's GPUs reach each other.
  bool can_move_by_cores() const {
    return !on_host() && (cluster_.nodes() == 1 || across_ != nullptr) && config_.gpus_reach &&
           device_.can_copy_by_cores();
  }

  /// Of sums and copies by cores, as the user bounds them; 0: not.
  int most_blocks() const { return config_.max_blocks; }

  /// Whether queues of the device can add up.
  bool can_add() const { return on_host() || has_kernels_; }

  /// Whether peers of this process cannot map the memory, in calls of several nodes.
  bool must_be_replaced(const void* buffer, uint64_t bytes) const;

  /// Whether a call that moves `bytes` in or out of this rank goes to engines; the same on every rank.
  EngineChoice choose(EngineUse use, uint64_t bytes) const;

  /// Runs a call whose plan `build` makes, as it was chosen. `remember`: `call.text` names the plan, which is kept for the next such call.
  Status run(Call call, const EngineChoice& choice, const PeersUse& use, const Build& build,
             bool remember = true);

  const device::Device& device() const { return device_; }

  // For who makes calls in another way than this.
  PeerBuffers& buffers() { return buffers_; }
  AcrossNodes* across() const { return across_.get(); }  // null on one node, and on the host
  /// Of a call that failed: QueueExecutor::give_up().
  void give_up(const Status& why, uint64_t sequence, device::Queue& queue) {
    queues_.give_up(why, sequence, executor_.waiter().peers_timeout(), &queue);
  }
  /// What its messages pass through: free whenever none of its calls runs. Null without across().
  PinnedStage* stage() const;

 private:
  Status prepare_across();
  int width() const;
  bool on_host() const { return device_.kind() == device::DeviceKind::host; }
  void log_how(const Call& call, const EngineChoice& choice, const Reach& reach, int blocks) const;
  int blocks_of(const Call& call, bool by_cores, const GpuSharing& sharing) const;
  /// A call by its name: what does not change from one to the next.
  struct Named {
    std::string text;  // which ranks compare: with who moves the data, or that it is captured
    std::array<std::unique_ptr<const QueueProgram>, 6> programs;  // by what is reached, and who makes them
    size_t bytes() const;
  };
  Result<Named*> named(const std::string& text, const EngineChoice& choice, bool captured, bool remember);
  /// What of the plan is common to all ranks of the node, once they have met.
  struct Way {
    Reach reach;
    plan::Makers makers = plan::Makers::engines;
  };
  Way way_of(const Call& call, const EngineChoice& choice, const PeersUse& use);
  Result<const QueueProgram*> program_of(Named& known, const Way& way, bool captured,
                                         const Build& build) const;
  Result<QueueProgram> make_program(const Reach& reach, plan::Makers makers, bool captured,
                                    const Build& build) const;
  Result<QueueCall> find_buffers(const Call& call, const QueueProgram& program, const Movers& movers);
  Movers movers_of(const Call& call, const EngineChoice& choice, const Reach& reach);
  Status run_queues(const Call& call, const EngineChoice& choice, const PeersUse& use, Named& known,
                    const Build& build);
  Status capture(const Call& call, const EngineChoice& choice, const PeersUse& use, Named& known,
                 const Build& build);
  Status run_across(const Call& call, const EngineChoice& choice, const std::string& plan_text,
                    const Build& build, bool remember);

  device::Device& device_;
  const topology::Cluster& cluster_;
  const int rank_;
  transports::NodeMemory& node_;
  FailureMonitor& monitor_;
  Executor& executor_;
  const EngineConfig config_;
  bool has_kernels_ = false;
  std::atomic<bool> has_core_queues_ = false;
  PeerBuffers buffers_;
  QueueExecutor queues_;
  std::unique_ptr<CapturedCalls> captured_;
  std::array<ProgramCache<Named>, 3> named_;  // by engines, by cores, captured
  std::unique_ptr<AcrossNodes> across_;       // null on one node, and on the host
};

}  // namespace epccl::runtime
