#include "topo/forecast.hpp"

#include <algorithm>

#include "algorithms/alltoall/alltoall.hpp"

namespace epccl::tools {
namespace {

using algorithms::Algorithm;
using topology::Machine;
using topology::RailPlan;

constexpr double gb = 1e9;
constexpr double assumed_node_rate = 12.5e9;  // 100 Gbit/s
constexpr double gpu_memory_rate = 500e9;     // a copy inside one GPU, reading and writing
constexpr double host_memory_rate = 10e9;     // a copy by one core
constexpr double assumed_pcie_rate = 12e9;
constexpr int max_ranks = 1024;

/// Nominal costs of a message, seconds.
void set_message_costs(plan::SimulationModel& model, bool rdma) {
  model.network_latency = rdma ? 3e-6 : 30e-6;
  model.sender_overhead = rdma ? 0.3e-6 : 7.5e-6;
  model.receiver_overhead = rdma ? 0.3e-6 : 7.5e-6;
}

bool has_rdma(const Machine& machine, const RailPlan& plan) {
  return !plan.rails.empty() && std::ranges::all_of(plan.rails, [&](const topology::Rail& rail) {
    const topology::Nic& nic = machine.nics[static_cast<size_t>(rail.nic)];
    return !nic.rdma_device.empty() || nic.kind == topology::NicKind::infiniband ||
           nic.kind == topology::NicKind::efa;
  });
}

/// Slowest known PCIe link between two GPUs; 0 where none is known.
double pcie_rate(const Machine& machine, int gpu_a, int gpu_b) {
  double slowest = 0;
  const int a = machine.gpus[static_cast<size_t>(gpu_a)].pci,
            b = machine.gpus[static_cast<size_t>(gpu_b)].pci;
  for (const int pci : topology::pci_links(machine, a, b)) {
    const double rate = machine.pci_devices[static_cast<size_t>(pci)].gb_per_s * gb;
    if (rate > 0 && (slowest == 0 || rate < slowest)) slowest = rate;
  }
  return slowest;
}

struct PeerRates {
  std::vector<std::vector<double>> rates;
  bool any_link = false, any_pcie = false, any_assumed = false;
};

PeerRates peer_rates(const Machine& machine, const RailPlan& plan) {
  const size_t count = plan.places.size();
  PeerRates result;
  result.rates.assign(count, std::vector<double>(count, 0));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) {
      const int gpu_a = plan.places[a].gpu, gpu_b = plan.places[b].gpu;
      if (gpu_a == gpu_b) continue;  // one memory
      double rate = topology::connection(machine, gpu_a, gpu_b).gb_per_s * gb;
      (rate > 0 ? result.any_link : result.any_pcie) = true;
      if (rate <= 0) rate = pcie_rate(machine, gpu_a, gpu_b);
      if (rate <= 0) result.any_assumed = true;
      result.rates[a][b] = rate > 0 ? rate : assumed_pcie_rate;
    }
  }
  return result;
}

void set_links(const RailPlan& plan, ClusterModel& model) {
  auto& simulation = model.simulation;
  simulation.link_of_local.assign(plan.places.size(), 0);
  bool unknown = false;
  for (const topology::RailGroup& group : topology::rail_groups(plan)) {
    for (const int local : group.locals)
      simulation.link_of_local[static_cast<size_t>(local)] = static_cast<int>(simulation.link_rates.size());
    unknown |= group.gb_per_s <= 0;
    simulation.link_rates.push_back(group.gb_per_s > 0 ? group.gb_per_s * gb : assumed_node_rate);
  }
  if (unknown)
    model.assumptions.push_back(
        fmt::format("network rates that are not known: {:.1f} GB/s a link", assumed_node_rate / gb));
}

void set_copies(const Machine& machine, const RailPlan& plan, ClusterModel& model) {
  auto& simulation = model.simulation;
  const bool gpus = !machine.gpus.empty();
  simulation.copy_rate = gpus ? gpu_memory_rate : host_memory_rate;
  simulation.node_copy_rate = simulation.copy_rate * static_cast<double>(plan.places.size());
  simulation.copy_latency = gpus ? 1e-6 : 0.1e-6;
  simulation.signal_latency = gpus ? 1e-6 : 0.2e-6;
  model.assumptions.push_back(
      fmt::format("a copy in a rank's own memory: {:.0f} GB/s, one at a time", simulation.copy_rate / gb));
  if (!gpus) return;
  PeerRates rates = peer_rates(machine, plan);
  simulation.peer_copy_rates = std::move(rates.rates);
  if (rates.any_link && rates.any_pcie)
    model.assumptions.push_back("between GPUs without a link of their own: the slowest PCIe link on the way");
  if (!rates.any_link && rates.any_pcie)
    model.assumptions.push_back(
        "no links between GPUs are recorded: copies go at the slowest PCIe link on the way");
  if (rates.any_assumed)
    model.assumptions.push_back(
        fmt::format("PCIe rates that are not known: {:.0f} GB/s", assumed_pcie_rate / gb));
}

/// As an RDMA transport wants them: 64 chunks a message, so that little of the second hop is left over at the end, none so
/// small that its own costs show.
algorithms::Parameters parameters_for(const topology::Cluster& cluster, uint64_t bytes_per_pair) {
  constexpr uint64_t smallest_chunk = 512 << 10, chunks = 64;
  const auto local = static_cast<uint64_t>(cluster.max_local_size());
  const uint64_t node_bytes = bytes_per_pair * local * local;
  algorithms::Parameters parameters;
  parameters.chunk_bytes = std::max(smallest_chunk, bytes_per_pair * local / chunks);
  parameters.send_window = 8 * parameters.chunk_bytes;
  parameters.scratch_bytes = std::max<uint64_t>(64 << 20, 32 * parameters.chunk_bytes);
  parameters.push = node_bytes > 2 * parameters.chunk_bytes;
  return parameters;
}

struct Outcome {
  double seconds = 0;
  uint64_t messages = 0;
};

Result<Outcome> run(Algorithm algorithm, const topology::Cluster& cluster, uint64_t bytes,
                    const plan::SimulationModel& model) {
  const algorithms::Parameters parameters = parameters_for(cluster, bytes);
  EPCCL_TRY(check(cluster, parameters));
  const auto exchange = algorithms::Exchange::uniform(cluster.ranks(), bytes);
  const plan::Plan plan = build_alltoall_everywhere(algorithm, cluster, exchange, parameters);
  EPCCL_ASSIGN(const plan::Timeline timeline, simulate(plan, model));
  return Outcome{timeline.total, std::ranges::max(timeline.links.messages_sent)};
}

std::string size_text(uint64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

/// Three digits: what the model knows.
std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

std::string faster(const Prediction& it) {
  const double gain = it.flat_seconds / it.two_stage_seconds;
  if (gain > 0.97 && gain < 1.03) return "equal";
  return gain > 1 ? fmt::format("two_stage {:.2f}x", gain) : fmt::format("flat {:.2f}x", 1 / gain);
}

}  // namespace

ClusterModel cluster_model(const Machine& machine, const RailPlan& plan) {
  ClusterModel model;
  model.rdma = has_rdma(machine, plan);
  set_message_costs(model.simulation, model.rdma);
  model.assumptions.push_back(
      fmt::format("{}: {:.0f} us latency, {:.1f} us CPU time a message", model.rdma ? "RDMA" : "sockets",
                  model.simulation.network_latency * 1e6,
                  (model.simulation.sender_overhead + model.simulation.receiver_overhead) * 1e6));
  set_links(plan, model);
  set_copies(machine, plan, model);
  return model;
}

std::vector<uint64_t> forecast_sizes() {
  return {64 << 10, 1 << 20, 16 << 20, 64 << 20};
}

Result<Forecast> make_forecast(const Machine& machine, const RailPlan& plan) {
  const auto local = static_cast<int>(plan.places.size());
  if (static_cast<int64_t>(local) * plan.nodes > max_ranks)
    return error(Code::invalid_argument, "times are predicted for up to {} ranks, not {} x {}", max_ranks,
                 plan.nodes, local);
  const auto cluster = topology::Cluster::uniform(plan.nodes, local);
  const ClusterModel model = cluster_model(machine, plan);
  Forecast forecast{plan.nodes, local, model.assumptions, {}};
  for (const uint64_t bytes : forecast_sizes()) {
    EPCCL_ASSIGN(const Outcome flat, run(Algorithm::flat, cluster, bytes, model.simulation));
    EPCCL_ASSIGN(const Outcome two_stage, run(Algorithm::two_stage, cluster, bytes, model.simulation));
    forecast.predictions.push_back(
        {bytes, flat.seconds, two_stage.seconds, flat.messages, two_stage.messages});
  }
  return forecast;
}

std::string format_forecast(const Forecast& forecast) {
  std::string text = fmt::format("Predicted alltoall of {} x {} ranks (simulated)\n", forecast.nodes,
                                 forecast.ranks_per_node);
  text += fmt::format("  {:>8}  {:>9}  {:>9}  {:<15}  {}\n", "per pair", "flat", "two_stage", "faster",
                      "messages a rank: flat, two_stage");
  for (const Prediction& it : forecast.predictions)
    text += fmt::format("  {:>8}  {:>9}  {:>9}  {:<15}  {}, {}\n", size_text(it.bytes_per_pair),
                        time_text(it.flat_seconds), time_text(it.two_stage_seconds), faster(it),
                        it.flat_messages, it.two_stage_messages);
  for (const std::string& assumption : forecast.assumptions) text += fmt::format("  taken: {}\n", assumption);
  return text;
}

nlohmann::ordered_json forecast_json(const Forecast& forecast) {
  nlohmann::ordered_json json{{"nodes", forecast.nodes},
                              {"ranks_per_node", forecast.ranks_per_node},
                              {"assumptions", forecast.assumptions},
                              {"alltoall", nlohmann::ordered_json::array()}};
  for (const Prediction& it : forecast.predictions)
    json["alltoall"].push_back({{"bytes_per_pair", it.bytes_per_pair},
                                {"flat_seconds", it.flat_seconds},
                                {"two_stage_seconds", it.two_stage_seconds},
                                {"flat_messages", it.flat_messages},
                                {"two_stage_messages", it.two_stage_messages}});
  return json;
}

}  // namespace epccl::tools
