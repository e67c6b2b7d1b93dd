#include "topology/cluster_printer.hpp"

#include <map>
#include <vector>

#include "topology/counted.hpp"

namespace epccl::topology {
namespace {

std::string sizes(const Cluster& cluster) {
  if (cluster.uniform()) return fmt::format("{} x {}", cluster.nodes(), cluster.max_local_size());
  std::string text;
  for (int node = 0; node < cluster.nodes(); ++node)
    text += fmt::format("{}{}", node > 0 ? " + " : "", cluster.local_size(node));
  return text;
}

std::string gpu_cell(const Machine& machine, int gpu) {
  if (gpu < 0) return "-";
  const Gpu& device = machine.gpus[static_cast<size_t>(gpu)];
  return fmt::format("GPU{} {}", device.index, device.bus_id.to_string());
}

std::string nic_cell(const Machine& machine, const RailPlace& place) {
  if (place.nics.empty()) return "-";
  std::string names;
  for (const int nic : place.nics)
    names += (names.empty() ? "" : "+") + machine.nics[static_cast<size_t>(nic)].name;
  return place.gpu < 0 ? names : fmt::format("{} ({})", names, to_string(place.path));
}

/// "0 8 16 24": all of them up to 16, else the first ones and how many.
std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t shown = 16;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < shown; ++i) text += fmt::format(" {}", ranks[i]);
  return ranks.size() > shown ? fmt::format("{} ... ({} ranks)", text, ranks.size()) : text;
}

std::string rails(const Cluster& cluster, const Machine& machine, const RailPlan& plan) {
  std::map<int, int> users;
  for (const Rail& rail : plan.rails) users[rail.nic] = static_cast<int>(rail.locals.size());
  std::string text = counted(cluster.max_local_size(), "rail") + "\n";
  for (int local = 0; local < cluster.max_local_size(); ++local) {
    text += fmt::format("  rail {}: ranks{}", local, list_ranks(cluster.rail(local)));
    const char* before = "  on ";
    for (const int nic : plan.places[static_cast<size_t>(local)].nics) {
      text += before + machine.nics[static_cast<size_t>(nic)].name;
      if (users[nic] > 1) text += fmt::format(" (shared by {} rails)", users[nic]);
      before = " + ";
    }
    text += "\n";
  }
  return text;
}

}  // namespace

std::string format_cluster(const Cluster& cluster, const Machine& machine, const RailPlan& plan) {
  std::string text = fmt::format("{}, {} ({})\n\n", counted(cluster.nodes(), "node"),
                                 counted(cluster.ranks(), "rank"), sizes(cluster));
  text += fmt::format("{:>4}  {:>5}  {:>6}  {:<18}  {}\n", "node", "local", "rank", "GPU", "nearest NIC");
  for (int node = 0; node < cluster.nodes(); ++node) {
    for (int local = 0; local < cluster.local_size(node); ++local) {
      const RailPlace& place = plan.places[static_cast<size_t>(local)];
      text += fmt::format("{:>4}  {:>5}  {:>6}  {:<18}  {}\n", node, local, cluster.rank_at(node, local),
                          gpu_cell(machine, place.gpu), nic_cell(machine, place));
    }
  }
  return text + "\n" + rails(cluster, machine, plan);
}

}  // namespace epccl::topology
