#include "runtime/engines/copy_engines.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "device/held_streams.hpp"
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
      queues_(device, cluster, node, monitor, {}, HoldWatch::let_go_of_this_thread) {}

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
  if (use == EngineUse::never && on_host()) return EngineChoice::host("as asked for");
  if (bytes == 0) return EngineChoice::host("nothing to move");
  if (use == EngineUse::never && can_move_by_cores()) return EngineChoice::compute_cores("as asked for");
  if (use == EngineUse::never)
    return EngineChoice::host(
        "never, and kernels cannot: there are none, or GPUs of the node are not known to reach each other");
  if (use == EngineUse::automatic && device_.kind() == device::DeviceKind::host)
    return EngineChoice::host("auto: the host's engines are threads, too");
  if (cluster_.nodes() > 1 && on_host())
    return EngineChoice::host_with_engines("engines make large copies inside nodes, cores do the rest");
  if (cluster_.nodes() > 1 && across_ == nullptr)
    return EngineChoice::host("several nodes without a network");
  const bool may_use_cores = use == EngineUse::automatic;
  if (cluster_.nodes() > 1)
    return EngineChoice::copy_engines("several nodes: the network beside them", may_use_cores);
  return EngineChoice::copy_engines(may_use_cores ? "auto" : "as asked for", may_use_cores);
}

bool CopyEngines::must_be_replaced(const void* buffer, uint64_t bytes) const {
  return across_ != nullptr && !node_.is_one_process() && !device_.can_export(buffer, bytes).ok();
}

Status CopyEngines::run(Call call, const EngineChoice& choice, const PeersUse& use, const Build& build,
                        bool remember) {
  executor_.waiter().begin(false, call.behind);
  const bool captured = call.capture != nullptr;
  const std::string plan_text(call.text);
  EPCCL_ASSIGN(Named* const known, named(plan_text, choice, captured, remember));
  call.text = known->text;
  call.signature = 0;     // it was that of the other text
  call.is_small = false;  // peers are told where its buffers lie
  if (!on_host()) call.on = captured ? &captured_->on() : &buffers_.on();
  EPCCL_TRY(executor_.calls().begin(call, 0, 0));
  EPCCL_TRY(executor_.calls().meet());
  if (across_ != nullptr) return run_across(call, choice, plan_text, build, remember);
  return captured ? capture(call, choice, use, *known, build) : run_queues(call, choice, use, *known, build);
}

CopyEngines::Way CopyEngines::way_of(const Call& call, const EngineChoice& choice, const PeersUse& use) {
  const bool one_gpu = buffers_.is_on_one_gpu(call.sequence);
  return {{buffers_.all_mapped(use, call.sequence), one_gpu || choice.by_cores},
          choice.by_cores ? plan::Makers::cores
          : one_gpu       ? plan::Makers::engines_and_sums
                          : plan::Makers::engines};
}

Result<const QueueProgram*> CopyEngines::program_of(Named& known, const Way& way, bool captured,
                                                    const Build& build) const {
  auto& program = known.programs[2 * static_cast<size_t>(way.makers) + (way.reach.direct ? 1 : 0)];
  if (program == nullptr) {
    EPCCL_ASSIGN(QueueProgram made, make_program(way.reach, way.makers, captured, build));
    program = std::make_unique<const QueueProgram>(std::move(made));
  }
  return program.get();
}

// A peer's memory that is gone is the echo of its end, which may have had a reason.
Result<QueueCall> CopyEngines::find_buffers(const Call& call, const QueueProgram& program,
                                            const Movers& movers) {
  auto found = buffers_.find(call, program, movers);
  return found.ok() ? std::move(found) : monitor_.explain(std::move(found).take_status());
}

// Peers wait for this rank's queues.
Status CopyEngines::run_queues(const Call& call, const EngineChoice& choice, const PeersUse& use,
                               Named& known, const Build& build) {
  QueueCall queued;
  // However this ends: the call's stream is known no longer than the call is.
  const std::unique_ptr<QueueExecutor, void (*)(QueueExecutor*)> forgets(
      &queues_, [](QueueExecutor* queues) { queues->forget(); });
  auto program = caught([&]() -> Result<const QueueProgram*> {
    const Way way = way_of(call, choice, use);
    EPCCL_ASSIGN(const QueueProgram* made, program_of(known, way, false, build));
    EPCCL_ASSIGN(queued, find_buffers(call, *made, movers_of(call, choice, way.reach)));
    return made;
  });
  if (!program.ok()) {
    Status status = monitor_.tell(std::move(program).take_status());
    queues_.give_up(status, call.sequence, executor_.waiter().peers_timeout());
    return status;
  }
  EPCCL_TRY(queues_.submit(*program.value(), queued, executor_.waiter()));
  Status status = queues_.finish(executor_.waiter());
  buffers_.mapped().calls_over(call.sequence);
  return status;
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
  auto program = caught([&]() -> Result<const DeviceProgram*> {
    const Reach reach{true, buffers_.is_on_one_gpu(call.sequence)};
    const auto makers = reach.sums_read_peers ? plan::Makers::engines_and_sums : plan::Makers::engines;
    EPCCL_ASSIGN(const DeviceProgram* made,
                 across_->program(
                     plan_text, [&] { return build(reach, rank_); }, makers, remember));
    EPCCL_ASSIGN(queued, find_buffers(call, made->queues, movers_of(call, choice, reach)));
    return made;
  });
  if (!program.ok()) {
    Status status = monitor_.tell(std::move(program).take_status());
    across_->give_up(call.sequence, executor_.waiter());
    return status;
  }
  queued.by_cores = choice.by_cores;
  queued.meaning = call.meaning;
  Status status = across_->run(*program.value(), queued, executor_.waiter());
  buffers_.mapped().calls_over(call.sequence);
  return status;
}

Status CopyEngines::capture(const Call& call, const EngineChoice& choice, const PeersUse& use, Named& known,
                            const Build& build) {
  const Way way = way_of(call, choice, use);
  EPCCL_ASSIGN(const QueueProgram* program, program_of(known, way, true, build));
  Status status = captured_->add(call, *program, movers_of(call, choice, way.reach));
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
