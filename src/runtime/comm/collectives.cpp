#include "runtime/comm/collectives.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string_view>

#include "base/log.hpp"
#include "runtime/comm/planned_run.hpp"
#include "runtime/executor/message_key.hpp"
#include "runtime/times/call_times.hpp"

namespace epccl::runtime {
namespace {

constexpr uint64_t engine_piece = 1 << 20, kernel_piece = 8 << 20;

/// What EPCCL_ALGO means to collectives, which have forms.
algorithms::Form form_of(algorithms::Algorithm algorithm) {
  switch (algorithm) {
    case algorithms::Algorithm::flat:
      return algorithms::Form::flat;
    case algorithms::Algorithm::two_stage:
      return algorithms::Form::two_level;
  }
  __builtin_unreachable();
}

}  // namespace

std::string CollectiveCall::text() const {
  std::string text = fmt::format("{} count {} {}", to_string(what.kind), count, datatype);
  const auto out = std::back_inserter(text);
  if (algorithms::reduces(what.kind)) fmt::format_to(out, " {}", operation);
  if (algorithms::has_root(what.kind)) fmt::format_to(out, " root {}", what.root);
  return text + part;
}

size_t CollectiveRunner::NameHash::operator()(const Name& name) const {
  size_t hash = std::hash<std::string_view>{}(name.part);
  const auto add = [&hash](size_t value) {
    constexpr size_t golden = 0x9e3779b97f4a7c15;
    hash = (hash ^ value) * golden;
    hash ^= hash >> 32;
  };
  add(name.bytes);
  add(static_cast<size_t>(name.kind) << 32 | static_cast<uint32_t>(name.root));
  add(reinterpret_cast<uintptr_t>(name.datatype));
  add(reinterpret_cast<uintptr_t>(name.operation));
  return hash;
}

algorithms::CollectiveParameters CollectiveRunner::base_parameters(const CollectiveCall& call) const {
  algorithms::CollectiveParameters parameters;
  parameters.chunk_bytes = config_.parameters.chunk_bytes;
  parameters.stage_bytes = config_.parameters.eager_limit;
  parameters.scratch_bytes = config_.parameters.scratch_bytes;
  parameters.ahead_bytes = transports::small_place;
  parameters.direct = config_.parameters.direct;
  // Each rank has a scalar of its own.
  parameters.scaled = call.reduction && call.reduction->op == device::ReduceOp::premul_sum;
  return parameters;
}

algorithms::FormChoice CollectiveRunner::choose(const CollectiveCall& call) const {
  algorithms::Forced forced;
  if (config_.algorithm) forced.form = form_of(*config_.algorithm);
  forced.variant = config_.variant;
  if (config_.carriers >= 0) forced.carriers = config_.carriers;
  return algorithms::choose_form(cluster_, call.what, cost_, base_parameters(call), forced);
}

void CollectiveRunner::log_choice(const std::string& text, const algorithms::FormChoice& choice,
                                  const EngineChoice& engines) const {
  if (!log::enabled(log::Level::info, log::coll)) return;
  log::info_once(log::coll, rank_,
                 "{} algo={} variant={} carriers={} transport=shm{} predicted_us={:.1f} flat_us={:.1f} "
                 "two_level_us={:.1f}{} by={} ({})",
                 text, to_string(choice.parameters.form), to_string(choice.parameters.variant),
                 choice.parameters.carriers, executor_.network_suffix(), choice.seconds * 1e6,
                 choice.flat_seconds * 1e6, choice.two_level_seconds * 1e6,
                 config_.algorithm ? " (forced)" : "", engines.who(), engines.why);
}

bool CollectiveRunner::fits_small_place(const algorithms::CollectiveSpec& call,
                                        algorithms::CollectiveParameters parameters) const {
  if (parameters.scratch_bytes < transports::small_place) return false;
  const bool was_together = algorithms::is_together(cluster_, call, parameters);
  const uint64_t chunk = algorithms::chunk_of(cluster_, call, parameters);
  parameters.scratch_bytes = transports::small_place;
  const algorithms::Staging staging = algorithms::staging_of(cluster_, call, parameters);
  if (!staging.staged || staging.bytes > transports::small_place ||
      !algorithms::check(cluster_, call, parameters).ok())
    return false;
  // It has to be made of the messages that were chosen.
  return algorithms::is_together(cluster_, call, parameters) == was_together &&
         algorithms::chunk_of(cluster_, call, parameters) == chunk;
}

Result<const CollectiveRunner::Planned*> CollectiveRunner::planned(const CollectiveCall& call) {
  const Name name{call.what.kind, call.what.root, call.what.bytes, call.count,
                  call.datatype,  call.operation, call.part};
  EPCCL_ASSIGN(const Planned* const known, plans_.get(name, true, [&] { return make_plan(call); }));
  return known;
}

Result<CollectiveRunner::Planned> CollectiveRunner::make_plan(const CollectiveCall& call) const {
  Planned made;
  made.text = call.text();
  made.signature = signature_of(made.text);
  made.meaning = meaning_of(made.text);
  const auto total = [&](int blocks) { return static_cast<uint64_t>(blocks) * call.what.bytes; };
  made.input_bytes = total(algorithms::input_blocks(cluster_, call.what, rank_));
  made.output_bytes = total(algorithms::output_blocks(cluster_, call.what, rank_));
  made.choice = choose(call);
  algorithms::CollectiveParameters& parameters = made.choice.parameters;
  made.is_small = fits_small_place(call.what, parameters);
  if (made.is_small) parameters.scratch_bytes = transports::small_place;
  EPCCL_TRY(algorithms::check(cluster_, call.what, parameters));
  const plan::RankPlan plan = algorithms::build_collective(cluster_, call.what, rank_, parameters);
  EPCCL_TRY(check_values(plan));
  made.plan = compile(plan, cluster_);
  return made;
}

Status CollectiveRunner::run(const CollectiveCall& call) {
  EPCCL_ASSIGN(const Planned* known, planned(call));
  const EngineChoice engines = choose_engines(call, &known->choice);
  log_choice(known->text, known->choice, engines);
  Call run = run_of(*known, call, executor_.next_sequence(), engines.copies);
  if (call.what.bytes > 0 && call.capture == nullptr && !algorithms::has_root(call.what.kind))
    CallTimes::all_wait_for_all(run.sequence);
  run.is_small = known->is_small;
  if (call.reduction) run.reduction = &*call.reduction;
  run.input_bytes = known->input_bytes;
  run.output_bytes = known->output_bytes;
  return engines.engines ? run_on_engines(call, engines, known->choice, run)
                         : executor_.run(known->plan, run);
}

// Where the host could make it as well, it does what a kernel cannot.
EngineChoice CollectiveRunner::choose_engines(const CollectiveCall& call,
                                              const algorithms::FormChoice* known) const {
  const EngineChoice choice = engines_.choose(call.engines, call.what.bytes);
  if (!choice.engines || !algorithms::reduces(call.what.kind)) return choice;
  if (!engines_.can_add()) return EngineChoice::host("there are no kernels to add up with");
  if (!kernels_name_all(call, known)) return EngineChoice::host("sums of more parts than a kernel can name");
  return choice;
}

bool CollectiveRunner::kernels_name_all(const CollectiveCall& call,
                                        const algorithms::FormChoice* known) const {
  if (!algorithms::reduces(call.what.kind)) return true;
  const auto form = [&] { return (known != nullptr ? *known : choose(call)).parameters.form; };
  const bool flat = cluster_.nodes() == 1 || form() == algorithms::Form::flat;
  const int parts = flat ? cluster_.ranks() : cluster_.max_local_size() + cluster_.nodes();
  return parts <= engines_.device().max_reduce_sources();
}

// Where sums do not read peers' memory copies are all that crosses between ranks; pieces are larger, since each of them is signalled, and
// largest where nothing is gained by making them one beside the other. Several nodes: in the form that
// cores would use, so that sums have the same bits; who carries does not matter to these, and a GPU has a NIC of its own to feed. Whether
// sums read peers' memory each node knows for itself, so messages must not depend on it.
Result<plan::RankPlan> CollectiveRunner::engine_plan(const CollectiveCall& call,
                                                     const algorithms::FormChoice& choice,
                                                     const CopyEngines::Reach& reach, int rank) const {
  algorithms::CollectiveParameters parameters = base_parameters(call);
  parameters.carriers = 0;
  const uint64_t piece = reach.sums_read_peers ? kernel_piece : engine_piece;
  parameters.chunk_bytes = std::max<uint64_t>(parameters.chunk_bytes, piece);
  if (cluster_.nodes() > 1) {
    parameters.form = choice.parameters.form;
    parameters.variant = choice.parameters.variant;
    parameters.chunk_bytes = config_.engine_chunk_bytes;
    parameters.room_to_fetch = true;
    parameters.carriers = algorithms::carriers_of_rails(cluster_, call.what, parameters.chunk_bytes,
                                                        choice.parameters.carriers);
  }
  parameters.fetch = !reach.sums_read_peers;
  parameters.direct = reach.direct;
  parameters.stage_bytes = parameters.ahead_bytes = 0;
  EPCCL_TRY(algorithms::check(cluster_, call.what, parameters));
  return algorithms::build_collective(cluster_, call.what, rank, parameters);
}

Status CollectiveRunner::run_on_engines(const CollectiveCall& call, const EngineChoice& engines,
                                        const algorithms::FormChoice& choice, Call run) {
  using algorithms::Collective;
  PeersUse use;
  const Collective kind = call.what.kind;
  if (kind == Collective::allgather || kind == Collective::reduce_scatter) use.outputs = false;
  return engines_.run(run, engines, use, [&](const CopyEngines::Reach& reach, int rank) {
    return engine_plan(call, choice, reach, rank);
  });
}

}  // namespace epccl::runtime
