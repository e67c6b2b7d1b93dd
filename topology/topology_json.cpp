#include "topology/topology_json.hpp"

#include "topology/paths.hpp"

namespace epccl::topology {
namespace {

using nlohmann::ordered_json;

const char* name_of(PciKind kind) {
  constexpr const char* names[] = {"host_bridge", "port", "switch", "endpoint"};
  return names[static_cast<size_t>(kind)];
}

const char* name_of(LinkEnd end) {
  constexpr const char* names[] = {"gpu", "switch", "cpu"};
  return names[static_cast<size_t>(end)];
}

ordered_json numa_json(const NumaNode& node) {
  return {
      {"os_index", node.os_index}, {"cpus", format_cpu_list(node.cpus)}, {"memory_bytes", node.memory_bytes}};
}

ordered_json pci_json(const PciDevice& device) {
  return {{"bus_id", device.bus_id.to_string()},
          {"kind", name_of(device.kind)},
          {"class", fmt::format("0x{:06x}", device.pci_class)},
          {"vendor", fmt::format("0x{:04x}", device.vendor)},
          {"device", fmt::format("0x{:04x}", device.device)},
          {"gb_per_s", device.gb_per_s},
          {"parent", device.parent},
          {"numa", device.numa}};
}

ordered_json gpu_json(const Machine& machine, int position) {
  const Gpu& gpu = machine.gpus[static_cast<size_t>(position)];
  ordered_json paths = ordered_json::array();
  for (size_t other = 0; other < machine.gpus.size(); ++other)
    paths.push_back(to_string(gpu_path(machine, position, static_cast<int>(other))));
  for (size_t nic = 0; nic < machine.nics.size(); ++nic)
    paths.push_back(to_string(gpu_nic_path(machine, position, static_cast<int>(nic))));
  return {{"index", gpu.index},
          {"bus_id", gpu.bus_id.to_string()},
          {"vendor", to_string(gpu.vendor)},
          {"model", gpu.model},
          {"arch", gpu.arch},
          {"pci", gpu.pci},
          {"numa", gpu.numa},
          {"nearest_nics", nearest_nics(machine, position)},
          {"paths", std::move(paths)}};
}

ordered_json nic_json(const Nic& nic) {
  return {{"name", nic.name},
          {"interface", nic.interface},
          {"rdma_device", nic.rdma_device},
          {"kind", to_string(nic.kind)},
          {"bus_id", nic.bus_id ? nic.bus_id->to_string() : ""},
          {"port", nic.port},
          {"guid", fmt::format("0x{:x}", nic.guid)},
          {"speed_mbit", nic.speed_mbit},
          {"up", nic.up},
          {"pci", nic.pci},
          {"numa", nic.numa}};
}

ordered_json link_json(const GpuLink& link) {
  return {{"kind", to_string(link.kind)}, {"gpu", link.gpu},
          {"end", name_of(link.end)},     {"peer", link.peer},
          {"count", link.count},          {"gb_per_s", link.gb_per_s}};
}

}  // namespace

ordered_json machine_json(const Machine& machine) {
  ordered_json json{{"name", machine.name}, {"source", machine.source}};
  for (const char* list : {"numa_nodes", "gpus", "nics", "switches", "links", "pci_devices"})
    json[list] = ordered_json::array();
  const auto assigned = assign_nics(machine);
  for (const NumaNode& node : machine.numa_nodes) json["numa_nodes"].push_back(numa_json(node));
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    json["gpus"].push_back(gpu_json(machine, static_cast<int>(i)));
    json["gpus"].back()["nic"] = assigned[i];
  }
  for (const Nic& nic : machine.nics) json["nics"].push_back(nic_json(nic));
  for (const GpuSwitch& known : machine.switches)
    json["switches"].push_back({{"id", known.id}, {"pci", known.pci}});
  for (const GpuLink& link : machine.links) json["links"].push_back(link_json(link));
  for (const PciDevice& device : machine.pci_devices) json["pci_devices"].push_back(pci_json(device));
  json["notes"] = machine.notes;
  return json;
}

ordered_json cluster_json(const Cluster& cluster, const Machine& machine) {
  const auto places = place_ranks(machine, cluster.max_local_size());
  ordered_json json{
      {"nodes", cluster.nodes()}, {"ranks", ordered_json::array()}, {"rails", ordered_json::array()}};
  for (int rank = 0; rank < cluster.ranks(); ++rank) {
    const int local = cluster.local_of(rank);
    const LocalPlace& place = places[static_cast<size_t>(local)];
    json["ranks"].push_back({{"rank", rank},
                             {"node", cluster.node_of(rank)},
                             {"local", local},
                             {"gpu", place.gpu},
                             {"nic", place.nic()}});
  }
  for (int local = 0; local < cluster.max_local_size(); ++local) json["rails"].push_back(cluster.rail(local));
  return json;
}

}  // namespace epccl::topology
