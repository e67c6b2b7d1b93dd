#include "runtime/engines/copy_engines.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "device/held_streams.hpp"
#include "device/host/host_stream.hpp"
#include "device/kernels/kernel_queue.hpp"
#include "plan/common_order.hpp"
#include "runtime/engines/across_nodes.hpp"
#include "runtime/executor/node_words.hpp"
#include "runtime/streams/hold_watch.hpp"

namespace epccl::runtime {
namespace {

// Queues of one purpose that the ranks of a process have together; more than engines are of no use.
constexpr int widest = 4;

}  // namespace

const char* to_string(EngineUse use) {
  switch (use) {
    case EngineUse::automatic:
      return "auto";
    case EngineUse::always:
      return "always";
    case EngineUse::never:
      return "never";
  }
  return "?";
}

Result<EngineUse> parse_engine_use(const std::string& text) {
  for (const EngineUse use : {EngineUse::automatic, EngineUse::always, EngineUse::never})
    if (text == to_string(use)) return use;
  return error(Code::invalid_argument, "copy engine \"{}\" is unknown: auto, always or never", text);
}

CopyEngines::CopyEngines(device::Device& device, const topology::Cluster& cluster, int rank,
                         transports::NodeMemory& node, FailureMonitor& monitor, Executor& executor,
                         const EngineConfig& config)
    : device_(device),
      cluster_(cluster),
      rank_(rank),
      node_(node),
      monitor_(monitor),
      executor_(executor),
      config_(config),
      buffers_(device, cluster, rank, node),
      queues_(device, cluster, node, monitor, {}, HoldWatch::let_go_of_this_thread),
      waiter_ahead_(executor.waiter()) {}

CopyEngines::~CopyEngines() {
  if (buffers_.has_scratch()) queues_.stop();
}

Status CopyEngines::prepare() {
  if (on_host()) return {};
  EPCCL_TRY(buffers_.make_scratch());
  EPCCL_ASSIGN(const auto queue, device_.make_queue(device::QueueKind::compute));
  has_kernels_ = device::kernels::has_kernels(*queue);
  if (cluster_.nodes() == 1) EPCCL_TRY(queues_.prepare(width()));
  if (cluster_.nodes() == 1 && config_.near_signals && device_.can_wait_by_kernels())
    EPCCL_TRY(buffers_.clear_near_words(*queues_.control()));
  if (cluster_.nodes() > 1) EPCCL_TRY(prepare_across());
  return prepare_for(choose(config_.use, 1));
}

Status CopyEngines::prepare_across() {
  if (executor_.network() == nullptr) return {};
  across_ =
      std::make_unique<AcrossNodes>(device_, cluster_, rank_, node_, *executor_.network(), monitor_, config_);
  return across_->prepare(width());
}

Status CopyEngines::prepare_for(const EngineChoice& choice) {
  if (!choice.by_cores || has_core_queues_) return {};
  const device::HeldStreams::Quiet quiet;
  EPCCL_TRY(across_ != nullptr ? across_->prepare_cores() : queues_.prepare_cores(width()));
  has_core_queues_ = true;
  return {};
}

Status CopyEngines::prepare_captures() {
  if (captured_ != nullptr) return {};
  EPCCL_ASSIGN(captured_, CapturedCalls::open(device_, cluster_, node_, buffers_.mapped()));
  return {};
}

int CopyEngines::width() const {
  return queues_each(device_, node_, widest);
}

EngineChoice CopyEngines::choose(EngineUse use, uint64_t bytes) const {
  if (use == EngineUse::never && on_host()) return {false, false, "as asked for"};
  if (bytes == 0) return {false, false, "nothing to move"};
  if (use == EngineUse::never && can_move_by_cores()) return {true, false, "as asked for", true};
  if (use == EngineUse::never)
    return {false, false,
            "never, and kernels cannot: there are none, or GPUs of the node are not known to reach each "
            "other"};
  if (use == EngineUse::automatic && device_.kind() == device::DeviceKind::host)
    return {false, false, "auto: the host's engines are threads, too"};
  if (cluster_.nodes() > 1 && on_host())
    return {false, true, "engines make large copies inside nodes, cores do the rest"};
  if (cluster_.nodes() > 1 && across_ == nullptr) return {false, false, "several nodes without a network"};
  const bool may_use_cores = use == EngineUse::automatic;
  if (cluster_.nodes() > 1)
    return {true, false, "several nodes: the network beside them", false, may_use_cores};
  return {true, false, may_use_cores ? "auto" : "as asked for", false, may_use_cores};
}

bool CopyEngines::must_be_replaced(const void* buffer, uint64_t bytes) const {
  return across_ != nullptr && !node_.is_one_process() && !device_.can_export(buffer, bytes).ok();
}

Status CopyEngines::run(const Call& call, const EngineChoice& choice, const PeersUse& use, const Build& build,
                        bool remember) {
  const std::string plan_text(call.text);
  if (call.is_ahead) {
    if (!remember) return {};  // its plan would be gone
    EPCCL_ASSIGN(*ahead_, begin(call, choice, use, remember));
    if (ahead_->reduction) ahead_->call.reduction = &*ahead_->reduction;
    return {};
  }
  executor_.waiter().begin(false, call.behind);
  if (ahead_ == nullptr || ahead_->known == nullptr) {
    ahead_.reset();
    EPCCL_ASSIGN(Begun begun, begin(call, choice, use, remember));
    return run_begun(begun, plan_text, build, remember);
  }
  const std::unique_ptr<Begun> begun = std::move(ahead_);
  return run_begun(*begun, plan_text, build, remember);
}

Result<CopyEngines::Begun> CopyEngines::begin(const Call& call, const EngineChoice& choice,
                                              const PeersUse& use, bool remember) {
  const bool captured = call.capture != nullptr;
  Begun begun;
  begun.call = call;
  begun.choice = choice;
  begun.use = use;
  EPCCL_ASSIGN(begun.known, named(std::string(call.text), choice, captured, remember));
  begun.call.text = begun.known->text;
  begun.call.signature = 0;     // it was that of the other text
  begun.call.is_small = false;  // peers are told where its buffers lie
  if (!on_host()) begun.call.on = captured ? &captured_->on() : &buffers_.on();
  if (call.is_ahead && call.reduction != nullptr) begun.reduction = *call.reduction;
  return begun;
}

Status CopyEngines::run_begun(Begun& begun, const std::string& plan_text, const Build& build, bool remember) {
  using Stage = Begun::Stage;
  NodeCalls& calls = executor_.calls();
  if (!begun.failure.ok() && begun.stage < Stage::met) return begun.failure;
  if (begun.stage == Stage::numbered) EPCCL_TRY(calls.begin(begun.call, 0, 0));
  if (begun.stage < Stage::met) EPCCL_TRY(calls.meet());
  if (across_ != nullptr) return run_across(begun.call, begun.choice, plan_text, build, remember);
  if (begun.call.capture != nullptr) return capture(begun, build);
  // However this ends: the call's stream is known no longer than the call is.
  std::unique_ptr<QueueExecutor, void (*)(QueueExecutor*)> forgets(
      &queues_, [](QueueExecutor* queues) { queues->forget(); });
  if (begun.stage < Stage::queued) EPCCL_TRY(submit(begun, build));
  EPCCL_TRY(finish(begun));
  static_cast<void>(forgets.release());  // the next one may be there
  return {};
}

CopyEngines::Way CopyEngines::way_of(const Begun& begun) {
  const uint64_t sequence = begun.call.sequence;
  const bool by_cores = begun.choice.by_cores, one_gpu = buffers_.is_on_one_gpu(sequence);
  return {{buffers_.all_mapped(begun.use, sequence), one_gpu || by_cores},
          by_cores  ? plan::Makers::cores
          : one_gpu ? plan::Makers::engines_and_sums
                    : plan::Makers::engines};
}

Result<std::shared_ptr<const QueueProgram>> CopyEngines::program_for(const Begun& begun, const Way& way,
                                                                     const Build& build) {
  auto& program = program_of(*begun.known, way);
  if (program == nullptr) {
    const bool captured = begun.call.capture != nullptr;
    EPCCL_ASSIGN(QueueProgram made, make_program(way.reach, way.makers, captured, build));
    program = std::make_shared<const QueueProgram>(std::move(made));
  }
  return program;
}

// What went wrong ahead is told now, as it would have been.
Result<CopyEngines::Planned> CopyEngines::plan(Begun& begun, const Build& build) {
  if (!begun.failure.ok()) return monitor_.explain(begun.failure);
  const Way way = way_of(begun);
  EPCCL_ASSIGN(const auto program, program_for(begun, way, build));
  EPCCL_ASSIGN(QueueCall queued,
               find_buffers(begun.call, *program, movers_of(begun.call, begun.choice, way.reach)));
  return Planned{program, std::move(queued)};
}

// A peer's memory that is gone is the echo of its end, which may have had a reason.
Result<QueueCall> CopyEngines::find_buffers(const Call& call, const QueueProgram& program,
                                            const Movers& movers) {
  auto found = buffers_.find(call, program, movers);
  return found.ok() ? std::move(found) : monitor_.explain(std::move(found).take_status());
}

// Peers wait for this rank's queues.
Status CopyEngines::submit(Begun& begun, const Build& build) {
  const auto planned = caught([&] { return plan(begun, build); });
  if (planned.ok())
    return queues_.submit(planned.value().program, planned.value().queued, executor_.waiter());
  Status status = monitor_.tell(planned.status());
  queues_.give_up(status, begun.call.sequence, executor_.waiter().peers_timeout());
  return status;
}

Status CopyEngines::finish(const Begun& begun) {
  const auto meanwhile = [&] {
    if (begun.call.may_look_ahead) look_ahead();
  };
  Status status = queues_.finish(executor_.waiter(), meanwhile);
  buffers_.mapped().calls_over(begun.call.sequence);
  return status;
}

uint64_t CopyEngines::next_sequence(bool is_ahead) {
  if (ahead_ != nullptr) return ahead_->call.sequence;
  const uint64_t sequence = executor_.next_sequence();
  if (is_ahead) ahead_ = std::make_unique<Begun>();
  if (is_ahead) ahead_->call.sequence = sequence;
  return sequence;
}

void CopyEngines::drop_ahead(const Status& why) {
  if (ahead_ == nullptr) return;
  if (ahead_->call.behind != nullptr) ahead_->call.behind->let_go();
  if (ahead_->stage >= Begun::Stage::told)
    queues_.give_up(why, ahead_->call.sequence, executor_.waiter().peers_timeout());
  queues_.forget();
  ahead_.reset();
}

// In its turn it is found out again, and told.
void CopyEngines::look_ahead() {
  try {
    if (ahead_ == nullptr) device::HostStream::look_ahead();
    if (ahead_ == nullptr || ahead_->known == nullptr || ahead_->waits_for_its_turn) return;
    ahead_->failure = go_ahead(*ahead_);
  } catch (const std::exception& thrown) {
    if (ahead_ == nullptr) return;
    ahead_->failure = error(Code::system_error, "rank {}: {}", rank_, thrown.what());
  }
  ahead_->waits_for_its_turn |= !ahead_->failure.ok();
}

// It waits neither for the call's ranks nor for its scratch: what brings them may be behind the call that runs. When all have met they only
// queue, which is soon.
Status CopyEngines::go_ahead(Begun& next) {
  using Stage = Begun::Stage;
  NodeCalls& calls = executor_.calls();
  if (next.stage == Stage::numbered) {
    EPCCL_ASSIGN(const bool has_begun, calls.begin_if_free(next.call));
    if (!has_begun) return {};
    next.stage = Stage::told;
  }
  EPCCL_ASSIGN(const bool has_met, calls.has_met());
  if (!has_met) return {};
  next.stage = Stage::met;
  next.waits_for_its_turn = true;  // whatever comes now
  const Way way = way_of(next);
  const std::shared_ptr<const QueueProgram> program = program_of(*next.known, way);
  if (program == nullptr) return {};
  EPCCL_ASSIGN(const QueueCall queued,
               buffers_.find(next.call, *program, movers_of(next.call, next.choice, way.reach)));
  waiter_ahead_.set_timeout(executor_.waiter().timeout());
  waiter_ahead_.begin(false, next.call.behind);
  queues_.submit_next(program, queued, waiter_ahead_);
  next.stage = Stage::queued;
  return {};
}

Movers CopyEngines::movers_of(const Call& call, const EngineChoice& choice, const Reach& reach) {
  const GpuSharing& sharing = buffers_.sharing(call.sequence);
  const Movers movers{blocks_of(call, choice.by_cores, sharing),
                      choice.may_use_cores ? sharing.here : std::vector<bool>{}};
  if (log::enabled(log::Level::info, log::coll)) log_how(call, choice, reach, movers.blocks);
  return movers;
}

void CopyEngines::log_how(const Call& call, const EngineChoice& choice, const Reach& reach,
                          int blocks) const {
  std::string how =
      reach.direct ? "peers' buffers are mapped" : "staged in scratch: peers cannot map a buffer";
  if (call.reduction != nullptr)
    how += reach.sums_read_peers ? ", sums read them" : ", sums read what was fetched";
  if (call.reduction != nullptr || choice.by_cores) how += fmt::format(", {} blocks at most", blocks);
  log::info_once(log::coll, rank_, "{}, {}: {}", call.text,
                 on_host() ? "host" : fmt::format("GPU {}", device_.ordinal()), how);
}

int CopyEngines::blocks_of(const Call& call, bool by_cores, const GpuSharing& sharing) const {
  if (config_.max_blocks > 0) return config_.max_blocks;
  device::Demand demand;
  demand.sharing = sharing.at_once;
  if (call.reduction != nullptr) demand.sources = node_.local_size();
  if (sharing.ranks < node_.local_size())
    demand.from = by_cores ? device::Demand::From::peers : device::Demand::From::fetched;
  return device_.fewest_blocks(demand);
}

PinnedStage* CopyEngines::stage() const {
  return across_ == nullptr ? nullptr : across_->stage();
}

// Peers map all buffers: what they cannot map has been replaced before. Where its ranks' memory lies each node knows for itself.
Status CopyEngines::run_across(const Call& call, const EngineChoice& choice, const std::string& plan_text,
                               const Build& build, bool remember) {
  QueueCall queued;
  const auto program = caught([&]() -> Result<const DeviceProgram*> {
    const Reach reach{true, buffers_.is_on_one_gpu(call.sequence)};
    const auto makers = reach.sums_read_peers ? plan::Makers::engines_and_sums : plan::Makers::engines;
    EPCCL_ASSIGN(const DeviceProgram* made,
                 across_->program(
                     plan_text, [&] { return build(reach, rank_); }, makers, remember));
    EPCCL_ASSIGN(queued, find_buffers(call, made->queues, movers_of(call, choice, reach)));
    return made;
  });
  if (!program.ok()) {
    Status status = monitor_.tell(program.status());
    across_->give_up(call.sequence, executor_.waiter());
    return status;
  }
  queued.by_cores = choice.by_cores;
  queued.meaning = call.meaning;
  Status status = across_->run(*program.value(), queued, executor_.waiter());
  buffers_.mapped().calls_over(call.sequence);
  return status;
}

Status CopyEngines::capture(Begun& begun, const Build& build) {
  const Call& call = begun.call;
  const Way way = way_of(begun);
  EPCCL_ASSIGN(const auto program, program_for(begun, way, build));
  Status status = captured_->add(call, *program, movers_of(call, begun.choice, way.reach));
  if (!status.ok()) return monitor_.explain(std::move(status));
  node_.set_done(call.sequence);
  return {};
}

size_t CopyEngines::Named::bytes() const {
  size_t all = 0;
  for (const auto& program : programs) all += program != nullptr ? program->bytes() : 0;
  return all;
}

// Ranks that disagree about engines, or about a graph, are told.
Result<CopyEngines::Named*> CopyEngines::named(const std::string& text, const EngineChoice& choice,
                                               bool captured, bool remember) {
  auto& all = named_[captured ? 2 : choice.by_cores ? 1 : 0];
  return all.get(text, remember, [&]() -> Result<Named> {
    return Named{text + (captured ? ", captured into a graph" : fmt::format(", {}", choice.movers())), {}};
  });
}

// In a graph one chain of each rank waits for others, in an order that all ranks know: so each makes all ranks' plans.
Result<QueueProgram> CopyEngines::make_program(const Reach& reach, plan::Makers makers, bool captured,
                                               const Build& build) const {
  if (!captured) {
    EPCCL_ASSIGN(const plan::RankPlan plan, build(reach, rank_));
    return make_queue_program(plan, cluster_, width(), plan::Signals::spread, makers);
  }
  plan::Plan all{cluster_, "captured", {}};
  for (int rank = 0; rank < cluster_.ranks(); ++rank) {
    EPCCL_ASSIGN(plan::RankPlan plan, build(reach, rank));
    all.ranks.push_back(std::move(plan));
  }
  EPCCL_ASSIGN(const plan::RankPlan plan, plan::in_common_order(all, rank_));
  return make_queue_program(plan, cluster_, width(), plan::Signals::chained, makers);
}

}  // namespace epccl::runtime
