#include "topo/forecast.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/caught.hpp"
#include "plan/printer.hpp"
#include "topo/forecast_plans.hpp"
#include "topology/pci_ids.hpp"

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

void set_links(const RailPlan& plan, double node_rate, ClusterModel& model) {
  auto& simulation = model.simulation;
  simulation.link_of_local.assign(plan.places.size(), 0);
  bool unknown = false;
  double sum = 0;
  for (const topology::RailGroup& group : topology::rail_groups(plan)) {
    for (const int local : group.locals)
      simulation.link_of_local[static_cast<size_t>(local)] = static_cast<int>(simulation.link_rates.size());
    unknown |= group.gb_per_s <= 0;
    simulation.link_rates.push_back(group.gb_per_s > 0 ? group.gb_per_s * gb : assumed_node_rate);
    sum += simulation.link_rates.back();
  }
  if (node_rate > 0) {
    for (double& rate : simulation.link_rates) rate *= node_rate / sum;
    model.assumptions.push_back(fmt::format("{:.4g} GB/s a node, as EPCCL_LINK_RATE says", node_rate / gb) +
                                (unknown ? "" : fmt::format(", not the {:.4g} of the rail plan", sum / gb)));
  } else if (unknown) {
    model.assumptions.push_back(
        fmt::format("network rates that are not known: {:.1f} GB/s a link", assumed_node_rate / gb));
  }
}

/// What a kernel counts as cores: hardware threads.
void set_cores(const Machine& machine, const RailPlan& plan, ClusterModel& model) {
  size_t cores = 0;
  for (const topology::NumaNode& node : machine.numa_nodes) cores += node.cpus.size();
  const size_t ranks = plan.places.size();
  model.cores = static_cast<double>(cores == 0 ? ranks : std::min(cores, ranks));
  if (cores == 0) {
    model.assumptions.push_back("a core for every rank: the machine's cores are not known");
  } else if (cores < ranks && !machine.gpus.empty()) {
    // In the model a copy keeps a core busy; GPUs make theirs themselves.
    model.assumptions.push_back(
        fmt::format("a core for every rank, though the machine has {} for {}", cores, ranks));
  } else if (cores < ranks) {
    model.simulation.cores_per_node = static_cast<int>(cores);
    model.assumptions.push_back(fmt::format("{} ranks take turns on {} cores", ranks, cores));
  }
}

/// "links of sm_120: 50 GB/s each, as those of sm_103".
std::string guessed_links(const Machine& machine) {
  const auto link = std::ranges::find_if(machine.links, &topology::GpuLink::guessed);
  const std::string& arch = machine.gpus[static_cast<size_t>(link->gpu)].arch;
  const topology::GpuLinkRate rate = topology::gpu_link_rate(link->kind, arch);
  return fmt::format("links of {}, whose rate is not known: {:.0f} GB/s each, as {} have",
                     arch.empty() ? "GPUs of an unknown kind" : arch, rate.gb_per_s,
                     rate.like.empty() ? "most" : fmt::format("those of {}", rate.like));
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
  if (std::ranges::any_of(machine.gpus, [](const topology::Gpu& gpu) {
        return gpu.vendor == topology::Vendor::amd || gpu.vendor == topology::Vendor::intel;
      }))
    model.assumptions.push_back("AMD's and Intel's GPUs as NVIDIA's: the library itself does not use them");
  PeerRates rates = peer_rates(machine, plan);
  simulation.peer_copy_rates = std::move(rates.rates);
  if (rates.any_link && rates.any_pcie)
    model.assumptions.push_back("between GPUs without a link of their own: the slowest PCIe link on the way");
  if (!rates.any_link && rates.any_pcie)
    model.assumptions.push_back(
        "no links between GPUs are recorded: copies go at the slowest PCIe link on the way");
  if (rates.any_link && std::ranges::any_of(machine.links, &topology::GpuLink::guessed))
    model.assumptions.push_back(guessed_links(machine));
  if (rates.any_assumed)
    model.assumptions.push_back(
        fmt::format("PCIe rates that are not known: {:.0f} GB/s", assumed_pcie_rate / gb));
}

struct Simulated {
  plan::Plan plan;
  plan::Timeline timeline;
};

struct Outcome {
  double seconds = 0;
  uint64_t messages = 0;
};

/// What messages of one plan put on the network at a time.
struct Traffic {
  uint64_t messages = 0;   // of all ranks
  uint64_t bytes = 0;      // of one
  uint64_t under_way = 0;  // bytes of one rank
};

Traffic traffic_of(const plan::Plan& plan, uint64_t window) {
  Traffic traffic;
  for (const plan::RankPlan& rank : plan.ranks)
    for (const plan::Step& step : rank.steps)
      if (step.kind == plan::Kind::send) {
        ++traffic.messages;
        traffic.bytes = std::max(traffic.bytes, step.total_bytes());
      }
  traffic.under_way = std::max(window, traffic.bytes);
  return traffic;
}

/// When rates are shared out anew: at every start and end of a message, as long as that can be afforded; else so often that little of the
/// time that a rank's messages under way take is lost by rounding. (The simulator's own choice knows nothing of windows: where a rank has
/// one message under way it may round each of them up to twice its time.)
double network_grain(const topology::Cluster& cluster, const plan::SimulationModel& model,
                     const Traffic& traffic) {
  constexpr double affordable = 4e8, parts = 50;
  if (traffic.bytes == 0) return 0;
  const double routes = static_cast<double>(cluster.ranks()) * static_cast<double>(traffic.under_way) /
                        static_cast<double>(traffic.bytes);
  if (2 * routes * static_cast<double>(traffic.messages) < affordable) return 0;
  const double node_rate = std::accumulate(model.link_rates.begin(), model.link_rates.end(), 0.0);
  return static_cast<double>(traffic.under_way) * cluster.max_local_size() / node_rate / parts;
}

Result<Simulated> run(Algorithm algorithm, const topology::Cluster& cluster, uint64_t bytes,
                      const algorithms::Parameters& parameters, plan::SimulationModel model) {
  const auto exchange = algorithms::Exchange::uniform(cluster.ranks(), bytes);
  Simulated run{build_alltoall_everywhere(algorithm, cluster, exchange, parameters), {}};
  model.network_grain = network_grain(cluster, model, traffic_of(run.plan, parameters.send_window));
  EPCCL_ASSIGN(run.timeline, simulate(run.plan, model));
  return run;
}

/// Chunks of two_stage may stand for several of the library's.
plan::SimulationModel costs_of(Algorithm algorithm, plan::SimulationModel model, const AlltoallPlans& plans) {
  switch (algorithm) {
    case Algorithm::flat:
      return model;
    case Algorithm::two_stage:
      break;
  }
  model.sender_overhead *= plans.chunks_as_one;
  model.receiver_overhead *= plans.chunks_as_one;
  model.signal_latency *= plans.chunks_as_one;
  model.copy_latency *= plans.pieces_as_one;
  return model;
}

Result<Prediction> predict(const topology::Cluster& cluster, uint64_t bytes, const ClusterModel& model,
                           const AlltoallPlans& plans) {
  const auto outcome = [&](Algorithm algorithm) -> Result<Outcome> {
    EPCCL_ASSIGN(const Simulated it, run(algorithm, cluster, bytes, plans.parameters,
                                         costs_of(algorithm, model.simulation, plans)));
    return Outcome{it.timeline.total, std::ranges::max(it.timeline.links.messages_sent)};
  };
  EPCCL_ASSIGN(const Outcome flat, outcome(Algorithm::flat));
  EPCCL_ASSIGN(Outcome two_stage, outcome(Algorithm::two_stage));
  two_stage.messages =
      static_cast<uint64_t>(std::llround(static_cast<double>(two_stage.messages) * plans.chunks_as_one));
  return Prediction{bytes,
                    flat.seconds,
                    two_stage.seconds,
                    flat.messages,
                    two_stage.messages,
                    plans.choice.algorithm,
                    plans.parameters.chunk_bytes,
                    plans.library_chunk};
}

std::string size_text(uint64_t bytes) {
  constexpr uint64_t kib = 1 << 10, mib = 1 << 20;
  if (bytes % mib == 0) return fmt::format("{} MiB", bytes / mib);
  return bytes % kib == 0 ? fmt::format("{} KiB", bytes / kib) : fmt::format("{} bytes", bytes);
}

/// What the plans were made with, and by what the library chooses.
void add_chunks(const runtime::CommConfig& config, Forecast& forecast) {
  std::string larger;
  for (const Prediction& it : forecast.predictions)
    if (it.chunk_bytes > it.library_chunk_bytes)
      larger += fmt::format("{}{} for {}", larger.empty() ? "" : ", ", size_text(it.chunk_bytes),
                            size_text(it.bytes_per_pair));
  forecast.assumptions.push_back(
      fmt::format("two_stage in chunks of {}", size_text(forecast.predictions.front().library_chunk_bytes)) +
      (larger.empty()
           ? ", as the library"
           : fmt::format(" as the library, but of {}: its own plans have too many steps", larger)));
  forecast.assumptions.push_back(
      config.algorithm
          ? fmt::format("the library takes: EPCCL_ALGO={}", to_string(*config.algorithm))
          : std::string("the library takes: by its own cost model, which knows sockets' costs, cores "
                        "and EPCCL_LINK_RATE"));
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

ClusterModel cluster_model(const Machine& machine, const RailPlan& plan, double node_rate) {
  ClusterModel model;
  model.rdma = has_rdma(machine, plan);
  set_message_costs(model.simulation, model.rdma);
  model.assumptions.push_back(
      fmt::format("{}: {:.0f} us latency, {:.1f} us CPU time a message", model.rdma ? "RDMA" : "sockets",
                  model.simulation.network_latency * 1e6,
                  (model.simulation.sender_overhead + model.simulation.receiver_overhead) * 1e6));
  set_links(plan, node_rate, model);
  set_copies(machine, plan, model);
  set_cores(machine, plan, model);
  return model;
}

std::vector<uint64_t> forecast_sizes() {
  return {64 << 10, 1 << 20, 16 << 20, 64 << 20};
}

Result<Forecast> make_forecast(const Machine& machine, const RailPlan& plan,
                               const runtime::CommConfig& config) {
  const auto local = static_cast<int>(plan.places.size());
  const auto cluster = topology::Cluster::uniform(plan.nodes, local);
  const ClusterModel model = cluster_model(machine, plan, config.link_rate);
  // All of them before the first is simulated: what is refused is so at once.
  std::vector<AlltoallPlans> plans;
  for (const uint64_t bytes : forecast_sizes()) {
    EPCCL_ASSIGN(plans.emplace_back(), plans_for(cluster, bytes, model.cores, !machine.gpus.empty(), config));
  }
  Forecast forecast{plan.nodes, local, model.assumptions, {}};
  return caught([&]() -> Result<Forecast> {
    for (size_t i = 0; i < plans.size(); ++i) {
      EPCCL_ASSIGN(forecast.predictions.emplace_back(),
                   predict(cluster, forecast_sizes()[i], model, plans[i]));
    }
    add_chunks(config, forecast);
    return forecast;
  });
}

Result<std::string> draw_alltoall(const Machine& machine, const RailPlan& plan,
                                  const runtime::CommConfig& config, uint64_t bytes_per_pair) {
  const auto cluster = topology::Cluster::uniform(plan.nodes, static_cast<int>(plan.places.size()));
  const ClusterModel model = cluster_model(machine, plan, config.link_rate);
  EPCCL_ASSIGN(const AlltoallPlans plans,
               plans_for(cluster, bytes_per_pair, model.cores, !machine.gpus.empty(), config));
  return caught([&]() -> Result<std::string> {
    const Algorithm taken = plans.choice.algorithm;
    EPCCL_ASSIGN(const Simulated it, run(taken, cluster, bytes_per_pair, plans.parameters,
                                         costs_of(taken, model.simulation, plans)));
    size_t steps = 0;
    for (const plan::RankPlan& rank : it.plan.ranks) steps += rank.steps.size();
    if (steps > most_marks)
      return error(Code::invalid_argument,
                   "the plan of {} ranks has {} steps, and a picture up to {}: take fewer nodes or ranks, "
                   "smaller blocks, or larger chunks (EPCCL_CHUNK_SIZE)",
                   cluster.ranks(), steps, most_marks);
    return svg_timeline(it.timeline, it.plan);
  });
}

std::string format_forecast(const Forecast& forecast) {
  std::string text = fmt::format("Predicted alltoall of {} x {} ranks (simulated)\n", forecast.nodes,
                                 forecast.ranks_per_node);
  text += fmt::format("  {:>8}  {:>9}  {:>9}  {:<15}  {:<13}  {}\n", "per pair", "flat", "two_stage",
                      "faster", "library takes", "messages a rank: flat, two_stage");
  for (const Prediction& it : forecast.predictions)
    text += fmt::format("  {:>8}  {:>9}  {:>9}  {:<15}  {:<13}  {}, {}\n", size_text(it.bytes_per_pair),
                        time_text(it.flat_seconds), time_text(it.two_stage_seconds), faster(it),
                        to_string(it.library), it.flat_messages, it.two_stage_messages);
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
                                {"two_stage_messages", it.two_stage_messages},
                                {"library", to_string(it.library)},
                                {"chunk_bytes", it.chunk_bytes},
                                {"library_chunk_bytes", it.library_chunk_bytes}});
  return json;
}

}  // namespace epccl::tools
