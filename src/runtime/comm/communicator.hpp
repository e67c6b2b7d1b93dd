// A communicator: the parts that one rank's collectives need.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "runtime/comm/alltoall.hpp"
#include "runtime/comm/call_order.hpp"
#include "runtime/comm/collectives.hpp"
#include "runtime/comm/comm_parts.hpp"
#include "runtime/comm/on_device.hpp"
#include "runtime/comm/regroup.hpp"
#include "runtime/comm/stragglers.hpp"
#include "runtime/engines/copy_engines.hpp"
#include "runtime/executor/call_name.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/messages/carrying.hpp"
#include "runtime/messages/p2p.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/shm_messages.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class Communicator {
 public:
  explicit Communicator(CommParts parts);
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  ~Communicator();

  /// Once, before anything else: makes what calls on its GPU need, if that is known, and waits until all ranks have come here. Error: the
  /// others know.
  Status begin();

  int rank() const { return parts_.rank; }
  int ranks() const { return parts_.cluster.ranks(); }
  const CommKey& key() const { return parts_.key; }
  const CommOrigin& origin() const { return parts_.origin; }
  const topology::Cluster& cluster() const { return parts_.cluster; }
  const CommConfig& config() const { return parts_.config; }
  const algorithms::CostParameters& cost() const { return parts_.cost; }
  /// Who moves the data of calls issued from now on; of calls that are issued already nothing changes.
  void set_engine_use(EngineUse use) { engine_use_.store(use, std::memory_order_relaxed); }
  /// How long work that begins from now on waits for a silent peer; <= 0: as configured. Any thread.
  void set_timeout(double seconds) { order_.set_timeout(seconds); }
  /// What set_timeout() was given last; 0: nothing.
  double timeout_that_was_set() const { return order_.default_timeout(); }
  EngineUse engine_use() const { return engine_use_.load(std::memory_order_relaxed); }
  /// As engine_use(), of calls on memory of GPUs: never, where those of a node cannot map each other's. Error: always is asked for there.
  Result<EngineUse> gpu_engine_use() const;
  /// What this rank has sent to and received from other nodes; waits for the calls that were issued before.
  struct Statistics {
    transports::MessageCounters messages;  // sent: by this rank itself
    transports::WorkCounters work;
    uint64_t messages_carried, bytes_carried;  // of this rank's, by neighbours
  };
  Statistics statistics();
  /// Whether calls that begin from now on are measured. Any thread.
  void measure_calls(bool on) { stragglers_.times().measure(on); }
  bool measures_calls() const { return stragglers_.times().is_on(); }
  /// Of those that were, since this was asked last; waits for the calls that were issued before.
  Result<CallTimes::Sums> call_times();
  /// Who of the ranks came late to the measured calls since this was asked last, by so much of the time. To be called from work passed to
  /// run(), by all ranks.
  Result<Lateness> find_stragglers(double threshold) { return stragglers_.compare(threshold); }
  /// Null on one node. For work passed to run().
  transports::MessageTransport* network() { return executor_.network(); }
  std::string network_suffix() const { return executor_.network_suffix(); }
  /// Whether ranks of a node can read and write each other's memory without a window.
  bool direct() const { return parts_.direct; }
  const CopyPolicy& copies() const { return parts_.config.copies; }
  /// Whether all ranks of this node are threads of one process (or there is but this one): their addresses mean the same to all.
  bool node_is_one_process() const { return parts_.node->is_one_process(); }

  double predict_alltoall(uint64_t bytes_per_pair) const { return alltoall_.predict(bytes_per_pair); }
  double predict_collective(const CollectiveCall& call) const { return collectives_.choose(call).seconds; }

  /// A place in the order of this communicator's work: taken when a call is issued, used when it runs.
  uint64_t take_ticket() { return order_.take_ticket(); }
  /// Runs `work` when all work with earlier tickets is through. The first failure is kept: it tells the other ranks, and
  /// all later work fails with it. `timeout_seconds`: how long this work waits for a silent peer; 0: as set_timeout() says.
  Status run(uint64_t ticket, const std::function<Status()>& work, double timeout_seconds = 0);
  /// Of work that failed, before anything goes on that waited for it: keeps the failure, if it is the first, and tells the peers. What the work returns.
  Status tell(Status status);
  /// From work that has turns of several communicators: this one's has failed, which ends now. As tell().
  Status fail(Status status);
  /// Then nothing waits for the end of this turn, which comes when that of the others does.
  void work_is_over() { order_.work_is_over(); }
  /// As run(), with a ticket that is taken now.
  Status run_next(const std::function<Status()>& work);

  /// Gives a place in the order back, when its turn has come.
  void pass(uint64_t ticket) { order_.pass(ticket); }
  Status pass(uint64_t ticket, const std::function<Status()>& work) { return order_.pass(ticket, work); }

  /// Runs a call of a graph's run, which has no place in the order: as soon as no other runs, or that has not begun yet but waits for
  /// its stream, which may be this graph's. Otherwise as run().
  Status run_replayed(const std::function<Status()>& work);
  /// While it lives, the calling thread's work passed to run() waits for something else, and has not begun: calls of graphs go first.
  /// At its end none runs; failure() then tells what became of them.
  class GivingWay {
   public:
    explicit GivingWay(Communicator& communicator)
        : order_(communicator.order_), gives_way_(order_.give_way()) {}
    GivingWay(const GivingWay&) = delete;
    GivingWay& operator=(const GivingWay&) = delete;
    ~GivingWay() {
      if (gives_way_) static_cast<void>(order_.take_way_back());
    }

   private:
    CallOrder& order_;
    const bool gives_way_;
  };

  // To be called from work passed to run().
  Status alltoall(const AlltoallCall& call) { return alltoall_.alltoall(call); }
  Status collective(const CollectiveCall& call) { return collectives_.run(call); }
  Status alltoallv(const AlltoallvCall& call) { return alltoall_.alltoallv(call); }
  Status alltoallv_unknown(const CallName& what, const void* input, const std::vector<uint64_t>& send_bytes,
                           const std::vector<uint64_t>& send_offsets, std::vector<std::byte>& received,
                           std::vector<uint64_t>& offsets) {
    return alltoall_.alltoallv_unknown(what, input, send_bytes, send_offsets, received, offsets);
  }
  /// Runs a plan on plain bytes.
  Status run_plan(const CompiledPlan& plan, const void* input, void* output, const CallName& name) {
    Call call{executor_.next_sequence(), input, output, name.text};
    call.meaning = name.meaning;
    return executor_.run(plan, call);
  }
  /// Whether a copy engine moves the rows that go to ranks of the node, where they are many.
  bool offloads_rows() const {
    const EngineChoice choice = engines_.choose(engine_use(), 1);
    return choice.engines || choice.copies;
  }
  /// 1, 2, ...: the same on every rank, since their work is in the same order. For what ranks are to know apart by number.
  uint32_t next_number() { return next_number_++; }
  /// Tells every rank `mine`, of which each rank has as many bytes: `by_rank` gets all, rank by rank. `text` must be equal on ranks that agree.
  /// To be called from work passed to run().
  Status tell_all(const void* mine, uint64_t bytes, std::byte* by_rank, const std::string& text);
  /// Runs a plan on token rows. `progress` may be null.
  Status run_rows(const CompiledPlan& plan, const RowBuffers& buffers, const CallName& name,
                  CallProgress* progress) {
    Call call{executor_.next_sequence(),
              buffers.input.data[0],
              buffers.output.data[0],
              name.text,
              &buffers,
              progress};
    call.meaning = name.meaning;
    call.offload = offloads_rows();
    // Of several nodes none waits for those that have no rows for it.
    if (cluster().nodes() == 1) CallTimes::all_wait_for_all(call.sequence);
    return executor_.run(plan, call);
  }
  /// For calls on memory of `device`, which is then this communicator's; made at the first call, if begin() has not.
  Result<OnDevice*> on_device(device::Device& device);
  /// Makes what calls need that are captured into graphs. To be asked for before such a call, not in run().
  Status prepare_captures(OnDevice& on);
  /// That of on_device(): of the first call on a GPU's memory, or the one that was current when the communicator was made. null: neither.
  device::Device* device_in_use();
  /// Every rank's choice, by rank; all are told all.
  Result<std::vector<SplitChoice>> exchange_choices(const SplitChoice& mine);
  P2p& p2p() { return p2p_; }
  Waiter& waiter() { return waiter_; }
  /// A failure from outside of the current call; ok before.
  Status check() { return monitor_.check(); }

  /// Ranks that take no part in anything any more, as far as is known: their process has ended, or they have left. Any thread; half a second
  /// at most.
  std::set<int> lost_ranks();

  /// Where ranks of this communicator meet to make another one.
  Regroup& regroup() { return regroup_; }

  /// Waits for all issued work, and leaves. Afterwards run() refuses.
  Status finalize();
  bool finalized() const { return order_.finalized(); }
  /// Ends everything with an error, here and on the other ranks. Any thread.
  void abort();
  /// As abort(), and waits until nothing is moving any more: buffers belong to the user again. `why` is a static text.
  void end_work(const char* why);
  /// As end_work(). Afterwards new communicators can be made of this one's ranks, and nothing else.
  void revoke();
  bool revoked() const { return order_.revoked(); }
  /// Tells the other ranks that this one makes no more calls. Once; who has failed has told them.
  void leave();
  /// The first failure of this communicator, ok before.
  Status failure() const { return order_.failure(); }
  /// Looks for failures of other ranks as well, if no call is running. Of a revoked communicator: ok once it is quiet.
  Status poll_failure();
  /// Whether no call is under way, issued or replayed. Any thread.
  bool is_quiet() const { return order_.is_quiet(); }

 private:
  Status run_begun(Admission admitted, const std::function<Status()>& work);
  Status failed_before_its_turn(Status status);
  enum class Kind : uint8_t { call, replay, comparison };
  Status try_work(const std::function<Status()>& work, Kind kind);
  Status do_work(const std::function<Status()>& work, Kind kind);
  void interrupt_work(const char* why);
  void set_work_timeout(double seconds);
  void fail_replay(const Status& status) { fail_beside(status, "a replay of a captured call failed"); }
  void fail_beside(const Status& status, const char* why);
  HoldWatch::Worker::Owner watched();
  void say_why(const Status& failure);
  void tell_others(const Status& failure);
  double work_timeout() const;
  std::string name() const;
  /// Those whose processes this rank can see, by rank.
  std::vector<int> ended_neighbours() const;
  std::string why_lost(const std::vector<int>& members, Absence absence);
  void note_nobody_there(int rank, bool at_loopback);
  double timeout_or_configured(double seconds) const;

  CommParts parts_;
  FailureMonitor monitor_;
  CallOrder order_;
  Executor executor_;
  CopyEngines engines_;
  transports::ShmMessages shm_messages_;
  AlltoallRunner alltoall_;
  CollectiveRunner collectives_;
  Carrying carrying_;
  P2p p2p_;
  Waiter waiter_;
  Regroup regroup_;
  std::atomic<EngineUse> engine_use_;
  Stragglers stragglers_;
  uint32_t next_number_ = 1;

  std::atomic<bool> left_ = false, replay_timed_out_ = false;
  std::atomic<bool> has_queues_ = false;  // of a GPU: there is an OnDevice
  std::mutex on_device_mutex_;
  std::unique_ptr<OnDevice> on_device_;
};

}  // namespace epccl::runtime
