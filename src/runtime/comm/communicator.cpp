#include "runtime/comm/communicator.hpp"

#include <algorithm>
#include <mutex>

#include "base/caught.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "device/gpus.hpp"
#include "device/held_streams.hpp"
#include "runtime/executor/node_words.hpp"

namespace epccl::runtime {
namespace {

CarryPolicy carry_policy(const CommParts& parts) {
  CarryPolicy policy;
  policy.aggregate = parts.config.aggregate;
  policy.cost = parts.cost;
  if (parts.config.wait.share_cores) {
    // Neighbours have to get a core first.
    policy.gather_seconds = 1e-3;
    policy.patience_seconds = 8e-3;
  }
  return policy;
}

// By one rank, as its first line.
void log_version(int rank) {
  static std::once_flag once;
  if (rank == 0 && log::enabled(log::Level::version, log::init))
    std::call_once(once, [rank] {
      log::write(log::Level::version, log::init, rank, "EPCCL version " EPCCL_VERSION_STRING);
    });
}

}  // namespace

Communicator::Communicator(CommParts parts)
    : parts_(std::move(parts)),
      monitor_(*parts_.bootstrap),
      order_(monitor_, parts_.rank, parts_.config.wait.first_warning),
      executor_(parts_.cluster, parts_.rank, *parts_.node, parts_.network.get(), monitor_, parts_.config.wait,
                parts_.config.copies),
      engines_(device::host_device(), parts_.cluster, parts_.rank, *parts_.node, monitor_, executor_,
               parts_.config.engines),
      shm_messages_(*parts_.node, parts_.direct),
      alltoall_(parts_.cluster, parts_.rank, parts_.config, parts_.cost, executor_, engines_),
      collectives_(parts_.cluster, parts_.rank, parts_.config, parts_.cost, executor_, engines_),
      carrying_(parts_.cluster, parts_.rank, *parts_.node, parts_.network.get(), carry_policy(parts_)),
      p2p_(parts_.cluster, parts_.rank, shm_messages_, parts_.network.get(), carrying_,
           parts_.config.message_piece_bytes),
      waiter_(rank(), *parts_.node, parts_.network.get(), monitor_, parts_.config.wait),
      regroup_(
          parts_.rank, parts_.meeting_point.get(), parts_.meeting_points, *parts_.bootstrap,
          [this](const std::vector<int>& members, Absence absence) { return why_lost(members, absence); },
          [this](int rank, bool at_loopback) { note_nobody_there(rank, at_loopback); },
          parts_.config.wait.timeout_seconds),
      engine_use_(parts_.config.engines.use),
      stragglers_(parts_.cluster, parts_.hosts, parts_.rank, parts_.config.compare_every,
                  [this](const void* mine, uint64_t bytes, std::byte* by_rank) {
                    return tell_all(mine, bytes, by_rank, "stragglers");
                  }) {
  monitor_.listened_to_by([this](Status status) { return tell(std::move(status)); });
  parts_.node->set_patience({waiter_.timeout(), [this] { return monitor_.check(); }});
}

Communicator::~Communicator() {
  if (parts_.network != nullptr) {
    const transports::MessageCounters& counters = parts_.network->counters();
    const Carrying::Counters& carried = carrying_.counters();
    const CarrierLanes::Counters carrier = carrying_.carrier_counters();
    if (carrying_.possible())
      log::info(
          log::net, rank(),
          "comm {}: {} messages carried ({} parcels withdrawn, {} given back), {} parcels written in {} "
          "pieces, {} lanes cut, {} messages came by lane",
          parts_.config.name, carried.carried, carried.withdrawn, carried.returned, carrier.parcels,
          counters.lane_writes, carrier.cuts, counters.messages_by_lane);
    log::info(
        log::net, rank(), "comm {}: {} connections, {} messages ({} bytes) sent, {} ({} bytes) received",
        parts_.config.name, counters.connections, counters.messages_sent + carried.carried,
        counters.bytes_sent + carried.carried_bytes, counters.messages_received, counters.bytes_received);
  }
  // What a replay makes may still be under way.
  if (on_device_ != nullptr) on_device_->replayed.reset();
  leave();
}

// A communicator that failed has told the others; one that ends well says goodbye.
void Communicator::leave() {
  if (left_.exchange(true)) return;
  parts_.bootstrap->leave(executor_.last_sequence());
}

// While no stream of the process can wait for a call of this communicator. A GPU that cannot be used is for the first call to tell.
Status Communicator::begin() {
  log_version(rank());
  if (parts_.config.gpu) {
    auto gpu = device::cuda_device(*parts_.config.gpu);
    Status made = gpu.ok() ? on_device(**gpu).status() : std::move(gpu).take_status();
    if (!made.ok())
      log::info(log::init, rank(), "comm {}: what calls on GPU {} need cannot be made yet: {}",
                parts_.config.name, *parts_.config.gpu, made.message());
  }
  if (Status met = parts_.bootstrap->barrier(); !met.ok()) {
    // Giving up is told as such: a connection that just closes would count as a death.
    parts_.bootstrap->report_failure(met);
    return met;
  }
  const topology::Cluster& all = cluster();
  const int node = all.node_of(rank());
  log::info(log::init, rank(),
            "comm {}: rank {} of {} on {}, node {} of {}, local position {} of {}; segment {} bytes; "
            "ready in {:.1f} ms",
            parts_.config.name, rank(), ranks(), parts_.hosts[static_cast<size_t>(node)], node, all.nodes(),
            all.local_of(rank()), all.local_size(node), parts_.node->segment().bytes(),
            1e3 * (now_seconds() - parts_.began));
  return {};
}

Result<EngineUse> Communicator::gpu_engine_use() const {
  const EngineUse use = engine_use();
  if (parts_.config.gpus_apart.empty() || use == EngineUse::never) return use;
  if (use == EngineUse::automatic) return EngineUse::never;
  return error(Code::invalid_usage, "rank {}: copy engines are always to make calls, but {}", rank(),
               parts_.config.gpus_apart);
}

namespace {

/// The same for all ranks of a communicator in this process.
uint64_t number_of(const CommKey& key) {
  const std::string_view id(reinterpret_cast<const char*>(key.id.data()), key.id.size());
  return (std::hash<std::string_view>{}(id) ^ key.session) | 1;
}

/// Whatever the work has thrown, the next one's turn comes.
struct EndOfTurn {
  CallOrder& order;
  ~EndOfTurn() { order.end(); }
};

}  // namespace

Result<OnDevice*> Communicator::on_device(device::Device& device) {
  const std::lock_guard lock(on_device_mutex_);
  if (on_device_ == nullptr) {
    const device::HeldStreams::Quiet quiet;
    EPCCL_ASSIGN(
        on_device_,
        OnDevice::make(
            device, parts_, monitor_, executor_, shm_messages_,
            {[this] { return order_.poll_while_waiting(); }, [this] { return order_.give_way(); },
             [this] { return order_.take_way_back(); }, watched(),
             FirstCalls::Limits{
                 .calls = parts_.config.first_gpu_calls,
                 .timeout_seconds = [this] { return timeout_or_configured(order_.default_timeout()); }},
             number_of(parts_.key), parts_.config.queues_behind_held}));
  }
  has_queues_.store(true, std::memory_order_release);
  const device::Device& known = on_device_->worker->device();
  if (&known != &device)
    return error(Code::invalid_usage, "rank {}: the communicator uses GPU {}, so not memory of GPU {}",
                 rank(), known.ordinal(), device.ordinal());
  return on_device_.get();
}

Status Communicator::prepare_captures(OnDevice& on) {
  const std::lock_guard lock(on_device_mutex_);
  const int node = parts_.cluster.node_of(rank());
  return on.prepare_captures(
      {rank(), parts_.config.wait.timeout_seconds,
       [this, node](int local) { return parts_.cluster.rank_at(node, local); },
       [this] { return order_.poll_for_replays(); }, [this](const Status& status) { fail_replay(status); },
       [this] { replay_timed_out_.store(true, std::memory_order_release); }},
      {rank(), [this](const std::function<Status()>& work) { return run_replayed(work); },
       [this](const Status& status) { fail_replay(status); }, watched()});
}

// What was not found out by a call in this communicator's order comes from outside, as an abort does. `why` is a static text.
void Communicator::fail_beside(const Status& status, const char* why) {
  if (!order_.keep_from_outside(status)) return;
  tell_others(status);
  monitor_.abort(why);  // what runs lets queues go
  parts_.interrupt->fire();
  parts_.node->wake_self();
}

void Communicator::say_why(const Status& failure) {
  parts_.node->say_why(fmt::format("{} failed: {}", name(), failure.message()), failure.reason());
}

// Its node can read why as soon as somebody there may ask.
void Communicator::tell_others(const Status& failure) {
  say_why(failure);
  parts_.bootstrap->report_failure(failure);
  log::warn(log::coll, rank(), "{}", failure.message());
}

std::vector<int> Communicator::ended_neighbours() const {
  std::vector<int> ended;
  const std::vector<int>& neighbours = parts_.config.wait.neighbours;
  for (int local = 0; local < static_cast<int>(neighbours.size()); ++local)
    if (local != parts_.node->local() && !parts_.node->lives(local))
      ended.push_back(neighbours[static_cast<size_t>(local)]);
  return ended;
}

// The control line may have ended with another rank's process, and tell nothing.
std::string Communicator::why_lost(const std::vector<int>& members, Absence absence) {
  order_.listen();
  std::string why = monitor_.lost(members, absence == Absence::or_failed);
  if (!why.empty()) return why;
  for (const int rank : ended_neighbours())
    if (std::ranges::find(members, rank) != members.end())
      return fmt::format("rank {} (same node, pid {}) is gone: its process has ended", rank,
                         parts_.node->pid(parts_.cluster.local_of(rank)));
  return "";
}

// An address of this machine says nothing of a rank on another one.
void Communicator::note_nobody_there(int rank, bool at_loopback) {
  const topology::Cluster& cluster = parts_.cluster;
  if (!at_loopback || cluster.node_of(rank) == cluster.node_of(parts_.rank))
    monitor_.note_lost(std::span(&rank, 1));
}

// What the hub knows is kept: it may end.
std::set<int> Communicator::lost_ranks() {
  monitor_.note_lost(parts_.bootstrap->lost_ranks());
  order_.listen();
  std::set<int> lost = monitor_.lost_ranks();
  const std::vector<int> ended = ended_neighbours();
  lost.insert(ended.begin(), ended.end());
  lost.erase(rank());
  return lost;
}

HoldWatch::Worker::Owner Communicator::watched() {
  return {[this] { return std::min(work_timeout(), parts_.config.wait.most_in_driver); },
          [this](Status why) {
            why = std::move(why).with_context(fmt::format("rank {}", rank()));
            fail_beside(why, "the communicator failed while the CUDA driver kept its thread");
            say_why(why);
            release_words(*parts_.node);
          },
          [this] { return monitor_.overhear(); }, [this] { return work_timeout(); }};
}

double Communicator::work_timeout() const {
  return timeout_or_configured(order_.timeout());
}

double Communicator::timeout_or_configured(double seconds) const {
  return seconds > 0 ? seconds : parts_.config.wait.timeout_seconds;
}

device::Device* Communicator::device_in_use() {
  const std::lock_guard lock(on_device_mutex_);
  return on_device_ == nullptr ? nullptr : &on_device_->worker->device();
}

Status Communicator::run(uint64_t ticket, const std::function<Status()>& work, double timeout_seconds) {
  return run_begun(order_.begin(ticket, timeout_seconds), work);
}

Status Communicator::run_next(const std::function<Status()>& work) {
  return run_begun(order_.begin_next(), work);
}

Status Communicator::run_begun(Admission admitted, const std::function<Status()>& work) {
  if (!admitted.has_come) return failed_before_its_turn(std::move(admitted).take_status());
  if (admitted.ok()) set_work_timeout(*admitted);
  const EndOfTurn end{order_};
  if (!admitted.ok()) return std::move(admitted).take_status();
  // After a call in which all ranks wait for all, so that all of them come here.
  const uint64_t comparable = stragglers_.times().comparable();
  EPCCL_TRY(do_work(work, Kind::call));
  const bool is_due = stragglers_.is_due() && stragglers_.times().comparable() != comparable;
  return is_due ? do_work([this] { return stragglers_.say(); }, Kind::comparison) : Status{};
}

// Nothing of it has moved, so nothing is to be stopped.
Status Communicator::failed_before_its_turn(Status status) {
  bool is_first = true;
  go_through([&] { is_first = order_.keep(status); });
  if (!is_first) return status;
  go_through([&] { tell_others(status); });
  parts_.node->say_gave_up();
  return status;
}

// What it throws (memory that it did not get, a thread that did not start) is its failure: its turn must end, and others be told.
Status Communicator::try_work(const std::function<Status()>& work, Kind kind) {
  try {
    CallTimes& times = stragglers_.times();
    if (!times.is_on() || kind == Kind::comparison) return work();
    const auto settle = [this] {
      executor_.waiter().moved();
      waiter_.moved();
    };
    return times.run(work, settle, kind == Kind::call);
  } catch (const std::exception& thrown) {
    return with_or_without_text(
        [&] { return error(Code::system_error, "rank {}: {}", rank(), thrown.what()); });
  }
}

Status Communicator::do_work(const std::function<Status()>& work, Kind kind) {
  Status status = try_work(work, kind);
  if (!status.ok()) return fail(std::move(status));
  return status;
}

// The first failure is kept; remote errors behind it are as a rule its echo.
Status Communicator::tell(Status status) {
  const bool may_be_echo = status.code() == Code::remote_error;
  if (may_be_echo && order_.failure().ok()) status = monitor_.explain(std::move(status));
  if (order_.keep(status)) {
    tell_others(status);
    return status;
  }
  // Another thread may be about to tell it.
  const Status known = order_.failure();
  say_why(known);
  return may_be_echo ? known : status;
}

// Afterwards buffers go back to the user, so nothing may move any more: also where a replay failed first and ended this call. Who comes to
// use them from now on looks in the node's memory. Each step is taken though there may have been no memory for the one before.
Status Communicator::fail(Status status) {
  const Status told = with_or_without_text([&] { return tell(std::move(status)); });
  if (told.message().empty()) order_.keep(told);
  parts_.node->say_gave_up();
  go_through([&] { shm_messages_.cancel_all(); });
  go_through([&] {
    if (parts_.network != nullptr) parts_.network->cancel_all();
  });
  go_through([&] { executor_.wait_for_peers(); });  // who hear of the failure now
  return told;
}

std::string Communicator::name() const {
  return fmt::format("rank {} (pid {} on {})", rank(), parts_.node->pid(parts_.node->local()),
                     parts_.hosts[static_cast<size_t>(parts_.cluster.node_of(rank()))]);
}

// A GPU's stream that queues let go may be through before this rank's call knows why. Looked at in the other order than a rank says it: who
// sees that this one gave up finds its reason.
Status Communicator::poll_failure() {
  const bool gave_up = has_queues_.load(std::memory_order_acquire) && parts_.node->gave_up(),
             timed_out = replay_timed_out_.load(std::memory_order_acquire);
  EPCCL_TRY(order_.poll());
  if (order_.revoked() || finalized()) return {};
  if (gave_up) return parts_.node->why_gave_up();
  return timed_out ? Status(Code::remote_error, Reason::timeout, "timeout of a replay of a captured call")
                   : Status{};
}

void Communicator::set_work_timeout(double seconds) {
  executor_.set_timeout(seconds);
  waiter_.set_timeout(seconds);
  parts_.node->set_patience(waiter_.timeout());
}

Status Communicator::run_replayed(const std::function<Status()>& work) {
  EPCCL_ASSIGN(const double timeout, order_.begin_replay());
  set_work_timeout(timeout);
  Status status = do_work(work, Kind::replay);
  if (const auto seconds = order_.timeout_of_runner()) set_work_timeout(*seconds);
  order_.end_replay();
  return status;
}

Status Communicator::finalize() {
  if (Status heard = order_.finalize(); !heard.ok())
    static_cast<void>(failed_before_its_turn(std::move(heard)));
  // A worker that is through with its last call may still hold this communicator: whoever ends it shall be the last.
  {
    const std::lock_guard lock(on_device_mutex_);
    if (on_device_ != nullptr) static_cast<void>(on_device_->worker->stream().synchronize());
  }
  // It makes no more calls, so its end is nothing to the others, however it comes.
  leave();
  return failure();
}

Communicator::Statistics Communicator::statistics() {
  return order_.when_quiet([this] {
    Statistics statistics{};
    if (parts_.network == nullptr) return statistics;
    statistics.messages = parts_.network->counters();
    if (const auto* work = parts_.network->work_counters()) statistics.work = *work;
    statistics.messages_carried = carrying_.counters().carried;
    statistics.bytes_carried = carrying_.counters().carried_bytes;
    return statistics;
  });
}

Result<CallTimes::Sums> Communicator::call_times() {
  return order_.when_quiet([this] { return stragglers_.times().take(); });
}

void Communicator::interrupt_work(const char* why) {
  monitor_.abort(why);
  parts_.interrupt->fire();
  parts_.node->wake_self();
  parts_.bootstrap->report_failure(fmt::format("{} by {}", why, name()));
}

void Communicator::abort() {
  interrupt_work("the communicator was aborted");
}

void Communicator::end_work(const char* why) {
  interrupt_work(why);
  order_.stop(why);
}

void Communicator::revoke() {
  order_.revoke();
  end_work("the communicator was revoked");
}

Status Communicator::tell_all(const void* mine, uint64_t bytes, std::byte* by_rank, const std::string& text) {
  CollectiveCall call;
  call.what = {algorithms::Collective::allgather, bytes};
  call.input = mine;
  call.output = by_rank;
  call.engines = EngineUse::never;
  call.count = bytes;
  call.part = ": " + text;
  return collectives_.run(call);
}

Result<std::vector<SplitChoice>> Communicator::exchange_choices(const SplitChoice& mine) {
  std::vector<SplitChoice> choices(static_cast<size_t>(ranks()));
  EPCCL_TRY(tell_all(&mine, sizeof mine, reinterpret_cast<std::byte*>(choices.data()), "split"));
  return choices;
}

}  // namespace epccl::runtime
