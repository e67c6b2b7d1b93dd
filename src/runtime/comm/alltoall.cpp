#include "runtime/comm/alltoall.hpp"

#include <numeric>

#include "base/log.hpp"
#include "runtime/comm/planned_run.hpp"
#include "runtime/executor/message_key.hpp"
#include "runtime/times/call_times.hpp"

namespace epccl::runtime {

AlltoallRunner::AlltoallRunner(const topology::Cluster& cluster, int rank, const CommConfig& config,
                               const algorithms::CostParameters& cost, Executor& executor,
                               CopyEngines& engines)
    : cluster_(cluster),
      rank_(rank),
      config_(config),
      cost_(cost),
      executor_(executor),
      engines_(engines),
      on_node_(cluster, rank, config.parameters, executor) {}

algorithms::Choice AlltoallRunner::choose(uint64_t bytes_per_pair) const {
  const algorithms::Algorithm* forced = config_.algorithm ? &*config_.algorithm : nullptr;
  return algorithms::choose(cluster_, {bytes_per_pair}, cost_, config_.parameters, forced, config_.carriers);
}

Result<CompiledPlan> AlltoallRunner::build(const algorithms::Choice& choice,
                                           const algorithms::Exchange& exchange) const {
  algorithms::Parameters parameters = config_.parameters;
  parameters.carriers = choice.carriers;
  parameters.push = choice.push;
  const plan::RankPlan plan =
      algorithms::build_alltoall(choice.algorithm, cluster_, exchange, rank_, parameters);
  EPCCL_TRY(check_values(plan));
  return compile(plan, cluster_);
}

void AlltoallRunner::log_choice(std::string_view text, const algorithms::Choice& choice,
                                const EngineChoice& engines) const {
  if (!log::enabled(log::Level::info, log::coll)) return;
  log::info_once(
      log::coll, rank_,
      "{} algo={} carriers={} transport=shm{} predicted_us={:.1f} flat_us={:.1f} two_stage_us={:.1f}{} "
      "by={} ({})",
      text, to_string(choice.algorithm), choice.carriers, executor_.network_suffix(), choice.seconds * 1e6,
      choice.flat_seconds * 1e6, choice.two_stage_seconds * 1e6, config_.algorithm ? " (forced)" : "",
      engines.who(), engines.why);
}

Result<const AlltoallRunner::Planned*> AlltoallRunner::planned(const AlltoallCall& call) {
  const auto made_anew = [&]() -> Result<Planned> {
    Planned made;
    made.choice = choose(call.block_bytes);
    EPCCL_ASSIGN(made.plan,
                 build(made.choice, algorithms::Exchange::uniform(cluster_.ranks(), call.block_bytes)));
    made.text = fmt::format("alltoall count {} {}", call.count, call.datatype);
    made.signature = signature_of(made.text);
    made.meaning = meaning_of(made.text);
    return made;
  };
  const Name name{call.block_bytes, call.count, call.datatype};
  EPCCL_ASSIGN(const Planned* const known, plans_.get(name, true, made_anew));
  return known;
}

Status AlltoallRunner::alltoall(const AlltoallCall& call) {
  EPCCL_ASSIGN(const Planned* const known, planned(call));
  const EngineChoice engines = engines_.choose(call.engines, call.block_bytes);
  log_choice(known->text, known->choice, engines);
  const Call run = run_of(*known, call, executor_.next_sequence(), engines.copies);
  if (call.block_bytes > 0 && call.capture == nullptr) CallTimes::all_wait_for_all(run.sequence);
  if (!engines.engines) return executor_.run(known->plan, run);
  return run_on_engines(run, engines, known->choice,
                        algorithms::Exchange::uniform(cluster_.ranks(), call.block_bytes));
}

// Blocks are read where they lie, or staged in as large pieces as scratch has room for. Several nodes: the plan that cores would run,
// with direct access to peers' buffers.
Result<plan::RankPlan> AlltoallRunner::engine_plan(const algorithms::Choice& choice,
                                                   const algorithms::Exchange& exchange, bool direct,
                                                   int rank) const {
  const bool across = cluster_.nodes() > 1;
  const auto peers = static_cast<uint64_t>(cluster_.ranks());
  algorithms::Parameters parameters = across ? config_.engine_parameters() : config_.parameters;
  parameters.direct = direct;
  parameters.eager_limit =
      direct ? 0 : std::max(parameters.eager_limit, parameters.scratch_bytes / (4 * peers));
  if (across) {
    parameters.carriers = choice.carriers;
    parameters.push = choice.push;
  }
  EPCCL_TRY(algorithms::check(cluster_, parameters));
  return algorithms::build_alltoall(across ? choice.algorithm : algorithms::Algorithm::flat, cluster_,
                                    exchange, rank, parameters);
}

Status AlltoallRunner::run_on_engines(Call run, const EngineChoice& engines, const algorithms::Choice& choice,
                                      const algorithms::Exchange& exchange) {
  for (int peer = 0; peer < cluster_.ranks(); ++peer) {
    if (const uint64_t sent = exchange.bytes(rank_, peer); sent > 0)
      run.input_bytes = std::max(run.input_bytes, exchange.input_offset(rank_, peer) + sent);
    if (const uint64_t received = exchange.bytes(peer, rank_); received > 0)
      run.output_bytes = std::max(run.output_bytes, exchange.output_offset(rank_, peer) + received);
  }
  return engines_.run(
      run, engines, {.inputs = true, .outputs = false},
      [&](const CopyEngines::Reach& reach, int rank) {
        return engine_plan(choice, exchange, reach.direct, rank);
      },
      exchange.is_uniform());
}

Status AlltoallRunner::check_counts(const AlltoallvCall& call, const algorithms::Exchange& exchange) const {
  for (int source = 0; source < cluster_.ranks(); ++source) {
    const uint64_t sent = exchange.bytes(source, rank_),
                   expected = call.recv_bytes[static_cast<size_t>(source)];
    if (sent != expected)
      return error(Code::invalid_usage, "alltoallv: rank {} sends {} bytes to rank {}, which expects {}",
                   source, sent, rank_, expected);
  }
  return {};
}

Status AlltoallRunner::gather_counts(const CallName& name, const std::vector<uint64_t>& send_bytes,
                                     const std::vector<uint64_t>& send_offsets,
                                     const std::vector<uint64_t>& recv_offsets, const QueuedBehind* behind) {
  const auto ranks = static_cast<size_t>(cluster_.ranks());
  if (counts_plan_.steps.empty()) {
    counts_plan_ = compile(algorithms::build_counts_exchange(cluster_, rank_), cluster_);
    counts_in_.resize(ranks + 1);
    counts_out_.resize(algorithms::counts_output_bytes(cluster_, cluster_.node_of(rank_)) /
                       sizeof(algorithms::CountEntry));
  }
  for (size_t peer = 0; peer < ranks; ++peer)
    counts_in_[peer] = {send_bytes[peer], send_offsets[peer], recv_offsets[peer]};
  counts_in_[ranks] = {std::accumulate(send_bytes.begin(), send_bytes.end(), uint64_t{0}), 0, 0};
  Call exchange{executor_.next_sequence(), counts_in_.data(), counts_out_.data(), name.text, nullptr};
  CallTimes::all_wait_for_all(exchange.sequence);
  exchange.meaning = name.meaning;
  exchange.behind = behind;
  return executor_.run(counts_plan_, exchange);
}

Status AlltoallRunner::run_gathered(Call run, const algorithms::GatheredCounts& gathered, EngineUse use) {
  const auto ranks = static_cast<uint64_t>(cluster_.ranks());
  const algorithms::Choice choice = choose(gathered.total_bytes / (ranks * ranks));
  const EngineChoice engines = engines_.choose(use, gathered.total_bytes);
  log_choice(run.text, choice, engines);
  run.sequence = executor_.next_sequence();
  run.offload = engines.copies;
  if (engines.engines) return run_on_engines(run, engines, choice, gathered.exchange);
  EPCCL_ASSIGN(const CompiledPlan plan, build(choice, gathered.exchange));
  return executor_.run(plan, run);
}

void AlltoallRunner::log_on_node(const std::string& text, const AlltoallvCall& call) const {
  if (!log::enabled(log::Level::info, log::coll)) return;
  const EngineChoice engines = engines_.choose(call.engines, 1);
  const uint64_t sent = std::accumulate(call.send_bytes.begin(), call.send_bytes.end(), uint64_t{0});
  log::info_once(log::coll, rank_, "{}, {} bytes of this rank: inside the node transport=shm by={} ({})",
                 text, sent, engines.who(), engines.why);
}

// Ranks that disagree about engines would not run the same plan: their texts tell them.
Status AlltoallRunner::alltoallv(const AlltoallvCall& call) {
  std::string text = fmt::format("alltoallv {}", call.datatype);
  if (const EngineChoice engines = engines_.choose(call.engines, 1);
      cluster_.nodes() == 1 && engines.engines) {
    text += fmt::format(", {}", engines.movers());
  } else if (on_node_.possible()) {
    log_on_node(text, call);
    return on_node_.run(text, call.input, call.output,
                        {call.send_bytes, call.send_offsets, call.recv_bytes, call.recv_offsets});
  }
  const CallName called(std::move(text));
  EPCCL_TRY(gather_counts(called, call.send_bytes, call.send_offsets, call.recv_offsets, call.behind));
  const auto gathered = algorithms::read_counts(cluster_, cluster_.node_of(rank_), counts_out_.data(), false);
  EPCCL_TRY(check_counts(call, gathered.exchange));
  Call run{0, call.input, call.output, called.text};
  run.meaning = called.meaning;
  run.behind = call.behind;
  return run_gathered(run, gathered, call.engines);
}

Status AlltoallRunner::alltoallv_unknown(const CallName& what, const void* input,
                                         const std::vector<uint64_t>& send_bytes,
                                         const std::vector<uint64_t>& send_offsets,
                                         std::vector<std::byte>& received, std::vector<uint64_t>& offsets) {
  const auto ranks = static_cast<size_t>(cluster_.ranks());
  EPCCL_TRY(gather_counts(what, send_bytes, send_offsets, std::vector<uint64_t>(ranks)));
  const auto gathered = algorithms::read_counts(cluster_, cluster_.node_of(rank_), counts_out_.data(), true);
  offsets.assign(ranks + 1, 0);
  for (size_t source = 0; source < ranks; ++source)
    offsets[source + 1] = offsets[source] + gathered.exchange.bytes(static_cast<int>(source), rank_);
  received.resize(offsets.back());
  Call run{0, input, received.data(), what.text};
  run.meaning = what.meaning;
  return run_gathered(run, gathered, EngineUse::never);
}

}  // namespace epccl::runtime
