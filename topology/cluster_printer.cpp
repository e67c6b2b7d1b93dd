#include "topology/cluster_printer.hpp"

#include <map>
#include <vector>

#include "topology/paths.hpp"

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

std::string nic_cell(const Machine& machine, const LocalPlace& place) {
  if (place.nic < 0) return "-";
  const std::string& name = machine.nics[static_cast<size_t>(place.nic)].name;
  if (place.gpu < 0) return name;
  return fmt::format("{} ({})", name, to_string(gpu_nic_path(machine, place.gpu, place.nic)));
}

/// "0 8 16 24": all of them up to 16, else the first ones and how many.
std::string list_ranks(const std::vector<int>& ranks) {
  constexpr size_t shown = 16;
  std::string text;
  for (size_t i = 0; i < ranks.size() && i < shown; ++i) text += fmt::format(" {}", ranks[i]);
  return ranks.size() > shown ? fmt::format("{} ... ({} ranks)", text, ranks.size()) : text;
}

std::string rails(const Cluster& cluster, const Machine& machine, const std::vector<LocalPlace>& places) {
  std::map<int, int> users;
  for (const LocalPlace& place : places) ++users[place.nic];
  std::string text = fmt::format("{} rails\n", cluster.max_local_size());
  for (int local = 0; local < cluster.max_local_size(); ++local) {
    const int nic = places[static_cast<size_t>(local)].nic;
    text += fmt::format("  rail {}: ranks{}", local, list_ranks(cluster.rail(local)));
    if (nic >= 0) text += fmt::format("  on {}", machine.nics[static_cast<size_t>(nic)].name);
    if (nic >= 0 && users[nic] > 1) text += fmt::format(" (shared by {} rails)", users[nic]);
    text += "\n";
  }
  return text;
}

}  // namespace

std::string format_cluster(const Cluster& cluster, const Machine& machine) {
  const auto places = place_ranks(machine, cluster.max_local_size());
  std::string text =
      fmt::format("{} nodes, {} ranks ({})\n\n", cluster.nodes(), cluster.ranks(), sizes(cluster));
  text += fmt::format("{:>4}  {:>5}  {:>6}  {:<18}  {}\n", "node", "local", "rank", "GPU", "nearest NIC");
  for (int node = 0; node < cluster.nodes(); ++node) {
    for (int local = 0; local < cluster.local_size(node); ++local) {
      const LocalPlace& place = places[static_cast<size_t>(local)];
      text += fmt::format("{:>4}  {:>5}  {:>6}  {:<18}  {}\n", node, local, cluster.rank_at(node, local),
                          gpu_cell(machine, place.gpu), nic_cell(machine, place));
    }
  }
  return text + "\n" + rails(cluster, machine, places);
}

}  // namespace epccl::topology
