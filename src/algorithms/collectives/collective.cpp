#include "algorithms/collectives/collective.hpp"

#include <algorithm>

#include "algorithms/collectives/building.hpp"

namespace epccl::algorithms {
namespace {

/// Blocks that a staged round needs places for in scratch.
struct StagedBlocks {
  uint64_t inputs = 0, results = 0, network = 0;
  uint64_t units = 0;  // and so many units more, however large the blocks
  uint64_t all() const { return inputs + results + network; }
  uint64_t bytes(uint64_t block, uint64_t unit) const { return all() * block + units * unit; }
};

/// Of a rank that sends and receives for its node.
uint64_t blocks_together(const topology::Cluster& cluster) {
  return 2 * static_cast<uint64_t>(cluster.nodes() - 1) * static_cast<uint64_t>(cluster.max_local_size());
}

StagedBlocks staged_blocks(const topology::Cluster& cluster, const CollectiveSpec& call,
                           const CollectiveParameters& parameters) {
  const auto ranks = static_cast<uint64_t>(cluster.ranks());
  const auto local = static_cast<uint64_t>(cluster.max_local_size());
  const bool alone = cluster.nodes() == 1;
  const PartCounts parts = part_counts(cluster, call, parameters);
  switch (call.kind) {
    case Collective::allgather:
      if (alone) return {1, 0, 0};
      return {1, ranks, local};
    case Collective::gather:
      return {1, 0, alone ? 0 : local};
    case Collective::scatter:
      return {ranks, 0, 0};
    case Collective::broadcast:
      return {1, 1, 0};
    case Collective::reduce_scatter:
      return {ranks, 0, is_together(cluster, call, parameters) ? blocks_together(cluster) : parts.chunks()};
    case Collective::allreduce:
    case Collective::reduce:
      return {1, 1, parts.chunks(), parts.units()};
  }
  return {};
}

uint64_t least_scratch(const topology::Cluster& cluster, const CollectiveSpec& call,
                       const CollectiveParameters& parameters) {
  const StagedBlocks blocks = staged_blocks(cluster, call, parameters);
  if (!parameters.direct || parameters.scaled) return 2 * blocks.bytes(call.unit, call.unit);
  const PartCounts parts = part_counts(cluster, call, parameters);
  return reduces(call.kind) ? (parts.chunks() + parts.units()) * call.unit : 0;
}

RoundEnd append_round(RoundBuilder& b) {
  switch (b.call.kind) {
    case Collective::allgather:
      return append_allgather(b);
    case Collective::reduce_scatter:
      return append_reduce_scatter(b);
    case Collective::allreduce:
      return append_allreduce(b);
    case Collective::broadcast:
      return append_broadcast(b);
    case Collective::reduce:
      return append_reduce(b);
    case Collective::gather:
      return append_gather(b);
    case Collective::scatter:
      return append_scatter(b);
  }
  return {};
}

/// How a call is cut into rounds.
class Rounds {
 public:
  Rounds(const topology::Cluster& cluster, const CollectiveSpec& call, const CollectiveParameters& parameters)
      : call_(call), parameters_(parameters), blocks_(staged_blocks(cluster, call, parameters)) {
    const Staging staging = staging_of(cluster, call, parameters);
    staged_ = staging.staged;
    area_ = parameters.scratch_bytes;
    piece_ = call.bytes;
    if (!staged_ || staging.bytes <= parameters.scratch_bytes) return;
    // Two halves of scratch in turn.
    area_ /= 2;
    const uint64_t for_blocks = area_ - std::min(area_, blocks_.units * call.unit);
    piece_ = std::max(for_blocks / blocks_.all() / call.unit, uint64_t{1}) * call.unit;
  }

  uint32_t count() const { return static_cast<uint32_t>((call_.bytes + piece_ - 1) / piece_); }

  Round operator[](uint32_t number) const {
    Round round;
    round.number = number;
    round.staged = staged_;
    round.scaled = parameters_.scaled;
    round.is_last = number + 1 == count();
    round.piece = {number * piece_, std::min(call_.bytes, (number + uint64_t{1}) * piece_)};
    round.block = call_.bytes;
    const uint64_t base = number % 2 * area_;
    if (staged_) {
      round.inputs = base;
      round.results = base + blocks_.inputs * piece_;
      round.network = round.results + blocks_.results * piece_;
      round.network_bytes = base + area_ - round.network;
    } else {
      round.network_bytes = parameters_.scratch_bytes;
    }
    return round;
  }

 private:
  const CollectiveSpec& call_;
  const CollectiveParameters& parameters_;
  const StagedBlocks blocks_;
  bool staged_ = true;
  uint64_t area_ = 0, piece_ = 0;
};

}  // namespace

bool is_together(const topology::Cluster& cluster, const CollectiveSpec& call,
                 const CollectiveParameters& parameters) {
  const bool wanted = parameters.variant == Variant::together && call.kind == Collective::reduce_scatter &&
                      parameters.form == Form::two_level && cluster.nodes() > 1 && !parameters.fetch &&
                      !parameters.room_to_fetch;
  const bool staged = !parameters.direct || parameters.scaled || call.bytes <= parameters.stage_bytes;
  const uint64_t blocks = static_cast<uint64_t>(cluster.ranks()) + blocks_together(cluster);
  return wanted && staged && 2 * blocks * call.bytes <= parameters.scratch_bytes;
}

uint64_t chunk_of(const topology::Cluster& cluster, const CollectiveSpec& call,
                  const CollectiveParameters& parameters) {
  if (!reduces(call.kind) || call.bytes == 0) return parameters.chunk_bytes;
  const Round round = Rounds(cluster, call, parameters)[0];
  const SumPlaces places = sum_places(part_counts(cluster, call, parameters), round.piece.bytes(), call.unit,
                                      parameters.chunk_bytes, round.network_bytes);
  return std::min(places.chunk, std::max(round.piece.bytes(), call.unit));
}

const char* to_string(Variant variant) {
  switch (variant) {
    case Variant::plain:
      return "plain";
    case Variant::alone:
      return "alone";
    case Variant::tree:
      return "tree";
    case Variant::relay:
      return "relay";
    case Variant::split:
      return "split";
    case Variant::together:
      return "together";
  }
  return "?";
}

const char* to_string(Form form) {
  switch (form) {
    case Form::flat:
      return "flat";
    case Form::two_level:
      return "two_level";
  }
  return "?";
}

const char* to_string(Collective collective) {
  switch (collective) {
    case Collective::allgather:
      return "allgather";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::allreduce:
      return "allreduce";
    case Collective::broadcast:
      return "broadcast";
    case Collective::reduce:
      return "reduce";
    case Collective::gather:
      return "gather";
    case Collective::scatter:
      return "scatter";
  }
  return "?";
}

bool has_root(Collective collective) {
  return collective == Collective::broadcast || collective == Collective::reduce ||
         collective == Collective::gather || collective == Collective::scatter;
}

bool reduces(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::allreduce ||
         collective == Collective::reduce;
}

int input_blocks(const topology::Cluster& cluster, const CollectiveSpec& call, int rank) {
  const bool none =
      (call.kind == Collective::broadcast || call.kind == Collective::scatter) && rank != call.root;
  if (none) return 0;
  return call.kind == Collective::reduce_scatter || call.kind == Collective::scatter ? cluster.ranks() : 1;
}

int output_blocks(const topology::Cluster& cluster, const CollectiveSpec& call, int rank) {
  const bool none = (call.kind == Collective::reduce || call.kind == Collective::gather) && rank != call.root;
  if (none) return 0;
  return call.kind == Collective::allgather || call.kind == Collective::gather ? cluster.ranks() : 1;
}

Status check(const topology::Cluster& cluster, const CollectiveSpec& call,
             const CollectiveParameters& parameters) {
  const uint64_t least = least_scratch(cluster, call, parameters);
  if (parameters.scratch_bytes >= least) return {};
  return error(Code::invalid_usage,
               "{} of {} ranks needs {} bytes of scratch at least, and has {}: raise "
               "EPCCL_SCRATCH_SIZE",
               to_string(call.kind), cluster.ranks(), least, parameters.scratch_bytes);
}

Staging staging_of(const topology::Cluster& cluster, const CollectiveSpec& call,
                   const CollectiveParameters& parameters) {
  const uint64_t bytes = staged_blocks(cluster, call, parameters).bytes(call.bytes, call.unit);
  const bool is_small =
      call.bytes <= parameters.stage_bytes || (has_root(call.kind) && bytes <= parameters.ahead_bytes);
  return {!parameters.direct || parameters.scaled || (is_small && bytes <= parameters.scratch_bytes), bytes};
}

plan::RankPlan build_collective(const topology::Cluster& cluster, const CollectiveSpec& call, int rank,
                                const CollectiveParameters& parameters) {
  plan::Builder builder(rank);
  if (call.bytes == 0) return std::move(builder).take();
  Messages messages(builder, cluster.ranks());
  const Rounds rounds(cluster, call, parameters);
  NodeExchange::Posts posts = NodeExchange::no_posts;
  std::vector<RoundEnd> ends;
  for (uint32_t number = 0; number < rounds.count(); ++number) {
    const Round round = rounds[number];
    RoundBuilder part(builder, messages, posts, cluster, call, parameters, round,
                      number < 2 ? RoundEnd() : ends[number - 2]);
    ends.push_back(append_round(part));
  }
  return std::move(builder).take();
}

plan::Plan build_collective_everywhere(const topology::Cluster& cluster, const CollectiveSpec& call,
                                       const CollectiveParameters& parameters) {
  plan::Plan plan{cluster, std::string(to_string(call.kind)) + " " + to_string(parameters.form), {}};
  for (int rank = 0; rank < cluster.ranks(); ++rank)
    plan.ranks.push_back(build_collective(cluster, call, rank, parameters));
  return plan;
}

}  // namespace epccl::algorithms
