#include "runtime/comm/copy_engines.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "device/cuda/kernel_queue.hpp"
#include "device/held_streams.hpp"
#include "device/host/host_stream.hpp"
#include "plan/common_order.hpp"
#include "runtime/comm/across_nodes.hpp"
#include "runtime/comm/hold_watch.hpp"
#include "runtime/executor/node_words.hpp"

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
      scratch_(device, node.local_size()),
      peers_(device, node.local_size()),
      on_{&device, &peers_},
      queues_(device, cluster, node, monitor, {}, HoldWatch::let_go_of_this_thread),
      waiter_ahead_(executor.waiter()) {}

CopyEngines::~CopyEngines() {
  if (scratch_.is_made()) queues_.stop();
}

// A call uses one part of it, and the calls before and after it others, as with the host's scratch.
Status CopyEngines::prepare() {
  if (on_host()) return {};
  EPCCL_TRY(scratch_.make(node_.segment().spec().scratch_bytes, transports::call_halves));
  peers_.set_readers(node_.other_processes());
  on_.scratch = describe_on(peers_, scratch_.data(), scratch_.bytes());
  EPCCL_ASSIGN(const auto queue, device_.make_queue(device::QueueKind::compute));
  has_kernels_ = device::cuda::has_kernels(*queue);
  if (cluster_.nodes() == 1) EPCCL_TRY(queues_.prepare(width()));
  if (cluster_.nodes() == 1 && config_.near_signals && device_.can_wait_by_kernels())
    EPCCL_TRY(scratch_.clear_near_words(*queues_.control()));
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
  EPCCL_ASSIGN(captured_, CapturedCalls::open(device_, cluster_, node_, peers_));
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
  if (across_ == nullptr) return false;
  for (int local = 0; local < node_.local_size(); ++local)
    if (node_.pid(local) != node_.pid(node_.local())) return !device_.can_export(buffer, bytes).ok();
  return false;
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
  if (!on_host()) begun.call.on = captured ? &captured_->on() : &on();
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
  // However this ends: the call's stream is known no longer than the call is.
  std::unique_ptr<QueueExecutor, void (*)(QueueExecutor*)> forgets(
      &queues_, [](QueueExecutor* queues) { queues->forget(); });
  if (begun.stage < Stage::queued) EPCCL_TRY(submit(begun, build));
  if (begun.call.capture == nullptr) EPCCL_TRY(finish(begun));
  static_cast<void>(forgets.release());  // the next one may be there
  return {};
}

CopyEngines::Way CopyEngines::way_of(const Begun& begun) {
  const bool by_cores = begun.choice.by_cores, one_gpu = is_on_one_gpu();
  return {{all_mapped(begun.use), one_gpu || by_cores},
          by_cores  ? plan::Makers::cores
          : one_gpu ? plan::Makers::engines_and_sums
                    : plan::Makers::engines};
}

// What went wrong ahead is told now, as it would have been.
Status CopyEngines::submit(Begun& begun, const Build& build) {
  const Call& call = begun.call;
  const Way way = way_of(begun);
  auto& program = program_of(*begun.known, way);
  if (program == nullptr) {
    EPCCL_ASSIGN(QueueProgram made, make_program(way.reach, way.makers, call.capture != nullptr, build));
    program = std::make_shared<const QueueProgram>(std::move(made));
  }
  const Movers movers = movers_of(begun, way.reach);
  if (call.capture != nullptr) return capture(call, *program, movers);
  Result<QueueCall> queued = std::move(begun.failure);
  if (queued.status().ok()) queued = find_buffers(call, *program, movers);
  // A peer's memory that is gone is the echo of its end, which may have had a reason.
  if (!queued.ok()) {
    Status status = monitor_.explain(std::move(queued).take_status());
    queues_.give_up(status, call.sequence, executor_.waiter().peers_timeout());
    return status;
  }
  return queues_.submit(program, *queued, executor_.waiter());
}

Status CopyEngines::finish(const Begun& begun) {
  const auto meanwhile = [&] {
    if (begun.call.may_look_ahead) look_ahead();
  };
  Status status = queues_.finish(executor_.waiter(), meanwhile);
  peers_.calls_over(begun.call.sequence);
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
  EPCCL_ASSIGN(const QueueCall queued, find_buffers(next.call, *program, movers_of(next, way.reach)));
  waiter_ahead_.set_timeout(executor_.waiter().timeout());
  waiter_ahead_.begin(false, next.call.behind);
  queues_.submit_next(program, queued, waiter_ahead_);
  next.stage = Stage::queued;
  return {};
}

Movers CopyEngines::movers_of(const Begun& begun, const Reach& reach) {
  const Movers movers{blocks_of(begun.call, begun.choice.by_cores), who_may_use_cores(begun.choice)};
  if (log::enabled(log::Level::info, log::coll)) log_how(begun.call, begun.choice, reach, movers.blocks);
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

// By where their scratch lies, which every call on a GPU tells, and which stays.
const GpuSharing& CopyEngines::sharing() {
  if (on_host() || !sharing_.here.empty()) return sharing_;
  std::vector<RankPlace> places;
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::BufferRef& scratch = node_.call(local, executor_.last_sequence()).scratch;
    places.push_back({scratch.has_memory != 0 ? scratch.memory.place : 0, node_.pid(local)});
  }
  sharing_ = find_sharing(places, node_.local(), device_.serves_processes_at_once());
  return sharing_;
}

bool CopyEngines::is_on_one_gpu() {
  return sharing().ranks == node_.local_size();
}

std::vector<bool> CopyEngines::who_may_use_cores(const EngineChoice& choice) {
  return choice.may_use_cores ? sharing().here : std::vector<bool>{};
}

int CopyEngines::blocks_of(const Call& call, bool by_cores) {
  if (config_.max_blocks > 0) return config_.max_blocks;
  device::Demand demand;
  demand.sharing = sharing().at_once;
  if (call.reduction != nullptr) demand.sources = node_.local_size();
  if (sharing().ranks < node_.local_size())
    demand.from = by_cores ? device::Demand::From::peers : device::Demand::From::fetched;
  return device_.fewest_blocks(demand);
}

PinnedStage* CopyEngines::stage() const {
  return across_ == nullptr ? nullptr : across_->stage();
}

// Peers map all buffers: what they cannot map has been replaced before. Where its ranks' memory lies each node knows for itself.
Status CopyEngines::run_across(const Call& call, const EngineChoice& choice, const std::string& plan_text,
                               const Build& build, bool remember) {
  const Reach reach{true, is_on_one_gpu()};
  const auto makers = reach.sums_read_peers ? plan::Makers::engines_and_sums : plan::Makers::engines;
  EPCCL_ASSIGN(const DeviceProgram* program,
               across_->program(
                   plan_text, [&] { return build(reach, rank_); }, makers, remember));
  const Movers movers{blocks_of(call, choice.by_cores), who_may_use_cores(choice)};
  if (log::enabled(log::Level::info, log::coll)) log_how(call, choice, reach, movers.blocks);
  auto queued = find_buffers(call, program->queues, movers);
  // A peer's memory that is gone is the echo of its end, which may have had a reason.
  if (!queued.ok()) {
    Status status = monitor_.explain(std::move(queued).take_status());
    across_->give_up(call.sequence, executor_.waiter());
    return status;
  }
  queued->by_cores = choice.by_cores;
  Status status = across_->run(*program, *queued, executor_.waiter());
  peers_.calls_over(call.sequence);
  return status;
}

Status CopyEngines::capture(const Call& call, const QueueProgram& program, const Movers& movers) {
  Status status = captured_->add(call, program, movers);
  if (!status.ok()) return monitor_.explain(std::move(status));
  node_.set_done(call.sequence);
  return {};
}

// Of all ranks, so that all find the same.
bool CopyEngines::all_mapped(const PeersUse& use) const {
  for (int local = 0; local < node_.local_size(); ++local) {
    const transports::CallRecord& record = node_.call(local, executor_.last_sequence());
    if (use.inputs && !mapped(local, record.inputs[0])) return false;
    if (use.outputs && !mapped(local, record.outputs[0])) return false;
  }
  return true;
}

bool CopyEngines::mapped(int local, const transports::BufferRef& buffer) const {
  if (buffer.bytes == 0 || (on_host() ? buffer.has_window : buffer.has_memory) != 0) return true;
  for (int other = 0; other < node_.local_size(); ++other)
    if (node_.pid(other) != node_.pid(local)) return false;
  return true;
}

size_t CopyEngines::Named::steps() const {
  size_t count = 0;
  for (const auto& program : programs) count += program != nullptr ? program->steps.size() : 0;
  return count;
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

Result<std::byte*> CopyEngines::address_of(int local, const transports::BufferRef& buffer,
                                           uint64_t sequence) {
  if (on_host()) return node_.address_of(local, buffer);
  if (buffer.has_memory == 0 && node_.pid(local) == node_.pid(node_.local()))
    return reinterpret_cast<std::byte*>(buffer.address);  // of a thread of this process
  if (buffer.has_memory == 0)
    return error(Code::device_error, "memory of rank {} on a GPU cannot be mapped by other processes",
                 cluster_.rank_at(cluster_.node_of(rank_), local));
  return peers_.address_of(local, buffer.memory, buffer.bytes, sequence);
}

Result<std::byte*> CopyEngines::base_of_scratch(int local, uint64_t sequence) {
  if (local == node_.local()) return scratch_.data();
  return address_of(local, node_.call(local, sequence).scratch, sequence);
}

Result<std::byte*> CopyEngines::scratch_of(int local, const Call& call) {
  if (on_host()) return node_.scratch(local, call.scratch());
  EPCCL_ASSIGN(std::byte* const base, base_of_scratch(local, call.sequence));
  return scratch_.of_call(base, call.sequence);
}

// A rank that has near words says so by how long its scratch is.
const CallDevice& CopyEngines::on() {
  if (scratch_.has_near_words()) on_.scratch.bytes = scratch_.bytes_with_near_words();
  return on_;
}

// Kernels that wait are no way for processes that take turns: each would wait for a turn of another's. Nor for streams of users, which may
// have a kernel that needs all of the GPU before they come to the call; peers' memory is mapped in such calls too, or the first call whose
// stream is held would do that.
NearWords CopyEngines::near_words(uint64_t sequence) {
  if (on_host() || !scratch_.has_near_words()) return {};
  device::SignalWord* const own = scratch_.near_words(scratch_.data());
  constexpr int most_waiting = 64;  // on a GPU, of 128 kernels
  if (sharing().ranks < 2 || sharing().at_once < sharing().ranks) return {};
  int of_process = 0;
  bool has_behind = false;
  std::vector<device::SignalWord*> near(static_cast<size_t>(node_.local_size()));
  for (int local = 0; local < node_.local_size(); ++local) {
    has_behind |= node_.call(local, sequence).is_behind != 0;
    if (!sharing().here[static_cast<size_t>(local)]) continue;
    of_process += node_.pid(local) == node_.pid(node_.local()) ? 1 : 0;
    near[static_cast<size_t>(local)] = near_words_of(local, sequence);
  }
  if (has_behind) return {};  // nobody looks
  return {std::move(near), own,
          take_waiting_kernel(std::max(most_waiting * of_process / sharing().ranks, 1))};
}

device::SignalWord* CopyEngines::near_words_of(int local, uint64_t sequence) {
  if (local == node_.local()) return scratch_.near_words(scratch_.data());
  const transports::BufferRef& scratch = node_.call(local, sequence).scratch;
  if (scratch.bytes != scratch_.bytes_with_near_words()) return nullptr;
  const bool is_here = node_.pid(local) == node_.pid(node_.local());
  const auto is_there = [&] { return node_.done(local) < sequence; };
  // NOLINTNEXTLINE(performance-no-int-to-ptr): as the rank wrote it
  if (is_here && !scratch_.hold(local, reinterpret_cast<const void*>(scratch.address), is_there))
    return nullptr;
  if (!is_here && (scratch.has_memory == 0 || !device_.outlives_its_owner(scratch.memory))) return nullptr;
  const auto base = base_of_scratch(local, sequence);
  return base.ok() ? scratch_.near_words(*base) : nullptr;
}

// A peer that this rank's plan does not touch may be through with the call already, and its memory gone.
Result<QueueCall> CopyEngines::find_buffers(const Call& call, const QueueProgram& program,
                                            const Movers& movers) {
  QueueCall queued{call.sequence, std::string(call.text), {}, call.reduction, movers};
  queued.behind = call.behind;
  queued.near = near_words(call.sequence);
  for (int local = 0; local < node_.local_size(); ++local) {
    const auto& used = program.uses[static_cast<size_t>(local)];
    std::byte* scratch = nullptr;
    if (used[2] || local == node_.local()) {
      EPCCL_ASSIGN(scratch, scratch_of(local, call));
    }
    if (local == node_.local()) {
      // Input is only read: the plan's verifier holds builders to that.
      queued.buffers.push_back({static_cast<std::byte*>(const_cast<void*>(call.input)),
                                static_cast<std::byte*>(call.output), scratch});
      continue;
    }
    const transports::CallRecord& record = node_.call(local, call.sequence);
    if ((used[0] || used[1]) && !on_host() && record.is_behind != 0)
      queued.awaited.push_back(cluster_.rank_at(cluster_.node_of(rank_), local));
    std::byte *input = nullptr, *output = nullptr;
    if (used[0]) {
      EPCCL_ASSIGN(input, address_of(local, record.inputs[0], call.sequence));
    }
    if (used[1]) {
      EPCCL_ASSIGN(output, address_of(local, record.outputs[0], call.sequence));
    }
    queued.buffers.push_back({input, output, scratch});
  }
  return queued;
}

}  // namespace epccl::runtime
