#include "algorithms/collectives/choose_form.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "algorithms/partners.hpp"

namespace epccl::algorithms {
namespace {

/// What the busiest node, and the busiest rank of it, have to do.
struct Work {
  double wire = 0;      // bytes over its link, the busier direction
  double messages = 0;  // of the node, sent or received, whichever are more
  double moved = 0;     // bytes copied and added up by all ranks of the node
  double alone = 0;     // the part of `moved` that one rank has to do by itself
  double speakers = 1;  // ranks of the node that send and receive
  double ends = 1;      // of a message, at that node: half of one where it only sends, or only receives
  double hops = 0;      // messages one after the other
  double turns = 0;     // how often ranks of a node wait for each other
  double parts = 0;     // of the result, that one rank takes from others of its node
};

/// Sizes that every estimate needs.
struct Shape {
  double nodes, local, smallest, ranks, remote, bytes, chunk;
  bool staged, together;

  Shape(const topology::Cluster& cluster, const CollectiveSpec& call, const CollectiveParameters& p)
      : nodes(cluster.nodes()),
        local(cluster.max_local_size()),
        smallest(most_carriers(cluster)),
        ranks(cluster.ranks()),
        remote(ranks - local),
        bytes(static_cast<double>(call.bytes)),
        chunk(static_cast<double>(chunk_of(cluster, call, p))),
        staged(staging_of(cluster, call, p).staged),
        together(is_together(cluster, call, p)) {}

  double chunks(double message) const { return std::max(1.0, std::ceil(message / chunk)); }
};

Work work_of_allgather(const Shape& s, const CollectiveParameters& p) {
  Work work;
  work.turns = s.staged ? 1 : 2;
  work.moved = s.local * s.ranks * s.bytes + (s.staged ? s.local * s.bytes : 0);
  if (s.nodes == 1) return work;
  work.hops = 1;
  work.speakers = s.staged && p.form == Form::two_level ? std::min(s.local, s.nodes - 1) : s.local;
  if (p.form == Form::flat) {
    work.wire = s.local * s.remote * s.bytes;
    work.messages = s.local * s.remote;
    return work;
  }
  work.wire = s.remote * s.bytes;
  work.messages = s.staged ? s.nodes - 1 : s.remote * s.chunks(s.bytes);
  work.moved += s.staged ? (s.local + s.remote) * s.bytes : 0;
  work.alone = s.staged ? s.local * s.bytes : 0;
  work.turns += s.staged ? 1 : 0;
  return work;
}

Work work_of_rooted_blocks(const Shape& s, const CollectiveParameters& p, bool is_gather) {
  Work work;
  work.turns = 1;
  work.moved = s.local * s.bytes * (s.staged ? 2 : 1);
  work.alone = s.staged ? s.local * s.bytes : s.bytes;
  if (s.nodes == 1) return work;
  work.hops = 1;
  work.ends = 0.5;
  work.wire = s.remote * s.bytes;
  const bool together = p.form == Form::two_level && s.staged;
  work.messages = together ? s.nodes - 1 : s.remote * (is_gather ? s.chunks(s.bytes) : 1);
  if (together) work.turns += 1;
  return work;
}

/// Nodes that a piece passes on its way along the row before the last one gets it: each of them has to send it first.
double sends_on(const Shape& s, const CollectiveParameters& p) {
  return p.variant == Variant::relay ? s.nodes - 2 : 0;
}

Work work_of_broadcast(const Shape& s, const CollectiveParameters& p) {
  Work work;
  work.turns = 1;
  work.moved = s.local * s.bytes;
  if (s.nodes == 1) return work;
  work.ends = 0.5;
  if (p.form == Form::flat) {
    work.hops = 1;
    work.wire = s.remote * s.bytes;
    work.messages = s.remote * s.chunks(s.bytes);
    return work;
  }
  const double depth = std::ceil(std::log2(s.nodes));
  const bool tree = p.variant == Variant::tree;
  const double sends = tree ? depth : p.variant == Variant::relay ? 1 : s.nodes - 1;
  work.hops = tree ? depth : sends_on(s, p) + 1;
  work.wire = sends * s.bytes + sends_on(s, p) * std::min(s.bytes, s.chunk);
  work.messages = sends * s.chunks(s.bytes) + sends_on(s, p);
  work.alone = s.staged ? 0 : (s.local - 1) * s.bytes;
  work.turns = 2;
  return work;
}

Work work_of_reduce_scatter(const Shape& s, const CollectiveParameters& p) {
  Work work;
  work.turns = s.staged ? 1 : 2;
  work.moved = s.local * s.ranks * s.bytes * (s.staged ? 2 : 1);
  if (s.nodes == 1) return work;
  work.hops = 1;
  const bool flat = p.form == Form::flat;
  work.speakers = s.together ? 1 : s.local;
  if (s.together) {
    work.wire = s.remote * s.bytes;
    work.messages = s.nodes - 1;
    work.alone = s.local * s.remote * s.bytes;
    work.turns += 1;
    return work;
  }
  work.wire = (flat ? s.local : 1) * s.remote * s.bytes;
  work.messages = (flat ? s.local : 1) * s.remote * s.chunks(s.bytes);
  return work;
}

/// What the busiest node does of a sum, between nodes.
struct Passing {
  double hops = 1;      // one after the other
  double messages = 1;  // for each chunk
  double sent = 1;      // times what is added up; or received, if that is more
  double added = 1;
};

Passing passing_to_root(const Shape& s, const CollectiveParameters& p) {
  const double depth = std::ceil(std::log2(s.nodes)), others = s.nodes - 1;
  if (p.variant == Variant::tree) return {depth, depth, depth, depth};
  if (p.variant == Variant::relay) return {others, 1, 1, 1};
  return {1, others, others, others};
}

Passing passing_to_all(const Shape& s, const CollectiveParameters& p) {
  const double others = s.nodes - 1, share = others / s.nodes;
  if (p.variant == Variant::tree) {
    const Doubling doubling(static_cast<int>(s.nodes));
    const double messages = doubling.messages();
    // Each sum reads what was there as well.
    return {static_cast<double>(doubling.hops()), messages, messages, 2 * messages};
  }
  if (p.variant == Variant::split) return {2, 2 * others, 2 * share, share};
  return {1, others, others, others};
}

/// allreduce and reduce where carriers add up slices.
Work work_of_sum(const Shape& s, const CollectiveParameters& p, bool to_all) {
  Work work;
  const double carriers = p.carriers == 0 ? s.smallest : std::min<double>(p.carriers, s.smallest);
  work.turns = 2;
  work.moved = s.local * s.bytes * (s.staged ? 2 : 1) + (to_all ? s.local : 1) * s.bytes;
  // Where nothing is staged a carrier also writes its sums into the others' outputs: from its cache, in about half the time of adding
  // up as many.
  const double handed_out = s.staged ? 0 : to_all ? s.local - 1 : std::min(s.local - 1, 1.0);
  work.alone = (s.local + handed_out / 2) * s.bytes / carriers;
  work.parts = s.staged ? carriers : 0;
  if (p.variant == Variant::alone) {
    work.turns = 1;
    work.moved = (s.local * s.local + s.local) * s.bytes;
    work.alone = s.local * s.bytes;
    work.parts = 0;
  }
  if (s.nodes == 1) return work;
  const double slice = s.bytes / carriers;
  work.ends = to_all ? 1 : 0.5;
  if (p.form == Form::flat) {
    work.speakers = to_all ? s.local : 1;
    work.hops = to_all ? 2 : 1;
    work.wire = to_all ? 2 * s.local * s.remote / s.ranks * s.bytes : s.remote * s.bytes;
    work.messages =
        to_all ? 2 * s.local * s.remote * s.chunks(s.bytes / s.ranks) : s.remote * s.chunks(s.bytes);
    return work;
  }
  const Passing passing = to_all ? passing_to_all(s, p) : passing_to_root(s, p);
  work.speakers = carriers;
  work.hops = passing.hops;
  work.wire = passing.sent * s.bytes + sends_on(s, p) * std::min(s.bytes, s.chunk);
  work.messages = carriers * (passing.messages * s.chunks(slice) + sends_on(s, p));
  work.moved += passing.added * s.bytes;
  work.alone += passing.added * s.bytes / carriers;
  work.turns += 1;
  return work;
}

Work work_of(const topology::Cluster& cluster, const CollectiveSpec& call, const CollectiveParameters& p) {
  const Shape shape(cluster, call, p);
  switch (call.kind) {
    case Collective::allgather:
      return work_of_allgather(shape, p);
    case Collective::gather:
    case Collective::scatter:
      return work_of_rooted_blocks(shape, p, call.kind == Collective::gather);
    case Collective::broadcast:
      return work_of_broadcast(shape, p);
    case Collective::reduce_scatter:
      return work_of_reduce_scatter(shape, p);
    case Collective::allreduce:
      return work_of_sum(shape, p, true);
    case Collective::reduce:
      return work_of_sum(shape, p, false);
  }
  return {};
}

/// Of those that cost the same the first is taken. Of many carriers more cores and NICs are at work, which the model does not know
/// all of; but where blocks are staged every rank waits for each of them.
std::vector<int> carrier_counts(const topology::Cluster& cluster, const CollectiveSpec& call,
                                const CollectiveParameters& base, std::optional<int> forced) {
  if (call.kind != Collective::allreduce && call.kind != Collective::reduce) return {1};
  const int most = most_carriers(cluster);
  if (forced) return {std::min(*forced, most)};
  std::vector<int> counts;
  for (int carriers = 1; carriers < most; carriers *= 2) counts.push_back(carriers);
  counts.push_back(most);
  if (!staging_of(cluster, call, base).staged) std::ranges::reverse(counts);
  return counts;
}

/// All ways to run a call that are worth a look.
std::vector<CollectiveParameters> candidates(const topology::Cluster& cluster, const CollectiveSpec& call,
                                             CollectiveParameters base, const Forced& forced) {
  std::vector<CollectiveParameters> all;
  const bool several = cluster.nodes() > 1;
  base.form = Form::two_level;
  for (const int carriers : carrier_counts(cluster, call, base, forced.carriers)) {
    base.carriers = carriers;
    all.push_back(base);
  }
  const bool rows = call.kind == Collective::broadcast || call.kind == Collective::reduce;
  const bool spread = cluster.nodes() > 2 && (rows || call.kind == Collective::allreduce);
  for (size_t i = 0, count = all.size(); spread && i < count; ++i) {
    CollectiveParameters other = all[i];
    for (const Variant variant : {Variant::tree, rows ? Variant::relay : Variant::split}) {
      other.variant = variant;
      all.push_back(other);
    }
  }
  // A rank's own input is scaled and added in one step, others' come rounded: alone, each rank would get bits of its own.
  const bool staged = call.bytes <= base.stage_bytes || !base.direct;
  const bool may_be_alone = !forced.carriers || forced.variant == Variant::alone;
  if (!several && !base.fetch && !base.scaled && staged && may_be_alone &&
      call.kind == Collective::allreduce) {
    CollectiveParameters alone = base;
    alone.variant = Variant::alone;
    alone.carriers = 1;
    all.push_back(alone);
  }
  CollectiveParameters together = all.front();
  together.variant = Variant::together;
  if (is_together(cluster, call, together)) all.push_back(together);
  base.carriers = 1;
  base.form = Form::flat;
  if (several && !base.scaled) all.push_back(base);
  return all;
}

/// Those that are made as `variant`; all of them where none is.
std::vector<CollectiveParameters> of_variant(std::vector<CollectiveParameters> all, Variant variant) {
  const auto is_it = [variant](const CollectiveParameters& way) { return way.variant == variant; };
  if (std::ranges::any_of(all, is_it)) std::erase_if(all, std::not_fn(is_it));
  return all;
}

}  // namespace

// Time of the busiest node: its wire and its cores, which overlap, but never wholly, and what comes one after the other.
double predict(const topology::Cluster& cluster, const CollectiveSpec& call,
               const CollectiveParameters& parameters, const CostParameters& cost) {
  const Work work = work_of(cluster, call, parameters);
  const double local = cluster.max_local_size(), cores = std::min(std::max(cost.cores_per_node, 0.01), local);
  const double wire = work.wire / cost.known_link_rate();
  // Sockets copy in and out once more, on the cores of those who use them.
  const double moving = (work.moved + work.wire) / cost.copy_rate / cores;
  const double alone = (work.alone + work.wire / work.speakers) / cost.copy_rate;
  const double core = std::max(moving, alone) +
                      work.ends * work.messages * cost.message_overhead / std::min(work.speakers, cores) +
                      2 * work.turns * local * cost.signal_latency / cores +
                      work.parts * cost.parcel_overhead;
  const double other_end = (1 - work.ends) * cost.message_overhead;
  return overlapped(wire, core) + work.hops * (cost.network_latency + other_end) +
         work.turns * cost.signal_latency;
}

int carriers_of_rails(const topology::Cluster& cluster, const CollectiveSpec& call, uint64_t chunk_bytes,
                      int least) {
  const auto most = static_cast<uint64_t>(most_carriers(cluster));
  const uint64_t fed = std::min(most, call.bytes / std::max(chunk_bytes, uint64_t{1}));
  return std::max(least, static_cast<int>(fed));
}

FormChoice choose_form(const topology::Cluster& cluster, const CollectiveSpec& call,
                       const CostParameters& cost, const CollectiveParameters& base, const Forced& forced) {
  FormChoice choice;
  constexpr double never = std::numeric_limits<double>::infinity();
  CollectiveParameters flat = base, two_level = base;
  choice.flat_seconds = choice.two_level_seconds = never;
  std::vector<CollectiveParameters> ways = candidates(cluster, call, base, forced);
  if (forced.variant && forced.form != Form::flat) ways = of_variant(std::move(ways), *forced.variant);
  for (const CollectiveParameters& candidate : ways) {
    const double seconds = predict(cluster, call, candidate, cost);
    const bool is_flat = candidate.form == Form::flat;
    double& best = is_flat ? choice.flat_seconds : choice.two_level_seconds;
    if (seconds >= best) continue;
    best = seconds;
    (is_flat ? flat : two_level) = candidate;
  }
  // On one node both are the same; a scaled input and a forced variant take no other form.
  const bool has_flat = choice.flat_seconds < never;
  if (!has_flat) choice.flat_seconds = choice.two_level_seconds;
  const bool prefers_flat = has_flat && choice.flat_seconds < margin * choice.two_level_seconds;
  const bool is_flat = has_flat && (forced.form ? *forced.form == Form::flat : prefers_flat);
  choice.parameters = is_flat ? flat : two_level;
  choice.seconds = is_flat ? choice.flat_seconds : choice.two_level_seconds;
  return choice;
}

}  // namespace epccl::algorithms
