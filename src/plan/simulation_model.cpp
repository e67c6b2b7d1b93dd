#include "plan/simulation_model.hpp"

#include <algorithm>
#include <cmath>

#include "plan/rows.hpp"

namespace epccl::plan {
namespace {

int links_of(const SimulationModel& model) {
  return std::max(1, static_cast<int>(model.link_rates.size()));
}

}  // namespace

Status check(const SimulationModel& model) {
  // Written so that a NaN is refused too. The limits keep times within the range of ticks.
  const auto rate = [](const char* name, double value) {
    if (value >= 1 && value <= 1e18) return Status();
    return error(Code::invalid_argument, "simulation model: {} is {} bytes/s, not in 1 .. 1e18", name, value);
  };
  const auto time = [](const char* name, double value) {
    if (value >= 0 && value <= 1000) return Status();
    return error(Code::invalid_argument, "simulation model: {} is {} s, not in 0 .. 1000", name, value);
  };
  EPCCL_TRY(rate("network_rate", model.network_rate));
  EPCCL_TRY(rate("copy_rate", model.copy_rate));
  EPCCL_TRY(rate("node_copy_rate", model.node_copy_rate));
  for (const double link : model.link_rates) EPCCL_TRY(rate("a link's rate", link));
  const int links = links_of(model);
  for (const int link : model.link_of_local)
    if (link < 0 || link >= links)
      return error(Code::invalid_argument, "simulation model: link {} of {} links a node", link, links);
  for (const auto& row : model.peer_copy_rates)
    for (const double peer : row)
      if (peer != 0) EPCCL_TRY(rate("a rate between peers", peer));
  EPCCL_TRY(time("network_latency", model.network_latency));
  EPCCL_TRY(time("sender_overhead", model.sender_overhead));
  EPCCL_TRY(time("receiver_overhead", model.receiver_overhead));
  EPCCL_TRY(time("copy_latency", model.copy_latency));
  EPCCL_TRY(time("copy_row_latency", model.copy_row_latency));
  EPCCL_TRY(time("signal_latency", model.signal_latency));
  if (model.network_grain != SimulationModel::automatic)
    EPCCL_TRY(time("network_grain", model.network_grain));
  if (model.cores_per_node >= 0) return {};
  return error(Code::invalid_argument, "simulation model: cores_per_node is {}", model.cores_per_node);
}

MemoryWork memory_work(const RankPlan& plan, const Step& step) {
  if (step.kind == Kind::copy || step.kind == Kind::move_rows) return {step.rows, step.total_bytes()};
  if (step.kind == Kind::reduce) return {step.source_count, step.source_count * step.bytes};
  if (step.kind != Kind::reduce_rows) return {};
  // A sum costs what it reads. One of nothing is a row of zeros.
  const uint64_t rows = std::max<uint64_t>(terms_of(plan, step).size(), step.rows);
  return {rows, rows * step.bytes};
}

int SimulatedCluster::links_per_node() const {
  return links_of(model_);
}

int SimulatedCluster::port_of(int rank) const {
  const int links = links_per_node(), local = cluster_.local_of(rank);
  const auto& given = model_.link_of_local;
  const int link =
      static_cast<size_t>(local) < given.size() ? given[static_cast<size_t>(local)] : local % links;
  return cluster_.node_of(rank) * links + link;
}

std::vector<double> SimulatedCluster::port_rates() const {
  const std::vector<double> one =
      model_.link_rates.empty() ? std::vector{model_.network_rate} : model_.link_rates;
  std::vector<double> rates;
  for (int node = 0; node < cluster_.nodes(); ++node) rates.insert(rates.end(), one.begin(), one.end());
  return rates;
}

/// Seconds that the busiest link needs at least.
double SimulatedCluster::busiest_link(const LinkBytes& links) const {
  const std::vector<double> rates = port_rates();
  std::vector<uint64_t> out(rates.size(), 0), in(rates.size(), 0);
  for (const LinkBytes::RankPair& pair : links.rank_pairs) {
    out[static_cast<size_t>(port_of(pair.source))] += pair.bytes;
    in[static_cast<size_t>(port_of(pair.destination))] += pair.bytes;
  }
  double seconds = 0;
  for (size_t port = 0; port < rates.size(); ++port)
    seconds = std::max(seconds, static_cast<double>(std::max(out[port], in[port])) / rates[port]);
  return seconds;
}

// Sharing out costs about a step per pair of links, and happens about twice per message: beyond this many steps, rarer.
Ticks SimulatedCluster::network_grain(const LinkBytes& links) const {
  constexpr double affordable = 2e8, parts = 2000;
  if (model_.network_grain != SimulationModel::automatic) return to_ticks(model_.network_grain);
  const double per_node = links_per_node();
  const double pairs =
      per_node * per_node *
      static_cast<double>(std::ranges::count_if(links.node_pair_bytes, [](uint64_t it) { return it > 0; }));
  if (pairs * static_cast<double>(links.messages) < affordable) return 0;
  return to_ticks(busiest_link(links) / parts);
}

/// How much longer than at `copy_rate` a copy takes from one rank's memory to another's of its node.
double SimulatedCluster::slowness(int from, int to) const {
  const auto& rates = model_.peer_copy_rates;
  const auto row = static_cast<size_t>(cluster_.local_of(from)),
             column = static_cast<size_t>(cluster_.local_of(to));
  if (row >= rates.size() || column >= rates[row].size() || rates[row][column] == 0) return 1;
  return model_.copy_rate / rates[row][column];
}

uint64_t SimulatedCluster::weighted_bytes(const RankPlan& plan, const Step& step) const {
  const uint64_t bytes = memory_work(plan, step).bytes;
  if (model_.peer_copy_rates.empty() || step.kind == Kind::reduce_rows) return bytes;
  double weighted = 0;
  if (step.kind == Kind::reduce) {
    for (const RowSource& source : sources_of(plan, step))
      weighted += static_cast<double>(step.bytes) * slowness(source.at.rank, step.destination.rank);
  } else {
    weighted = static_cast<double>(bytes) * slowness(step.source.rank, step.destination.rank);
  }
  return static_cast<uint64_t>(std::llround(weighted));
}

}  // namespace epccl::plan
