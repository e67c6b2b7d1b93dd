#include "topo/nic_list.hpp"

#include <algorithm>
#include <fstream>

#include "topology/paths.hpp"

namespace epccl::tools {
namespace {

using Json = nlohmann::ordered_json;
using topology::Machine;
using topology::Nic;
using topology::RdmaDevice;
using topology::RdmaPort;

std::string rate_text(int64_t mbit) {
  if (mbit <= 0) return "not known";
  return mbit % 1000 == 0 ? fmt::format("{} Gbit/s", mbit / 1000) : fmt::format("{} Mbit/s", mbit);
}

std::string line(const char* name, const std::string& value) {
  return fmt::format("    {:<14}{}\n", name, value);
}

/// A GPU for which a NIC is one of the nearest.
struct NearGpu {
  int index = 0;
  std::string path;  // "PIX"
};
std::vector<NearGpu> nearest_gpus(const Machine& machine, int nic) {
  std::vector<NearGpu> near;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const int gpu = static_cast<int>(i);
    const auto nearest = topology::nearest_nics(machine, gpu);
    if (std::ranges::find(nearest, nic) == nearest.end()) continue;
    near.push_back({machine.gpus[i].index, to_string(topology::gpu_nic_path(machine, gpu, nic))});
  }
  return near;
}

/// "GPU 0 (PIX), GPU 1 (PIX)".
std::string nearest_gpus_text(const Machine& machine, int nic) {
  std::string text;
  for (const NearGpu& near : nearest_gpus(machine, nic))
    text += fmt::format("{}GPU {} ({})", text.empty() ? "" : ", ", near.index, near.path);
  return text.empty() ? "none" : text;
}

/// The system's number of the NIC's NUMA node; -1: not known.
int numa_node(const Machine& machine, const Nic& nic) {
  return nic.numa < 0 ? -1 : std::max(-1, machine.numa_nodes[static_cast<size_t>(nic.numa)].os_index);
}

std::string place(const Machine& machine, const Nic& nic) {
  std::string text;
  if (nic.bus_id) text += line("bus id", nic.bus_id->to_string());
  const int node = numa_node(machine, nic);
  return text + line("NUMA node", node >= 0 ? fmt::format("{}", node) : "not known");
}

/// A NIC of the machine, and what libibverbs says of it; null: nothing.
struct Asked {
  const RdmaDevice* device = nullptr;
  const RdmaPort* port = nullptr;
};
Asked asked(const Nic& nic, const Result<std::vector<RdmaDevice>>& devices) {
  Asked found;
  for (size_t k = 0; devices.ok() && k < devices->size(); ++k) {
    if ((*devices)[k].name != nic.rdma_device) continue;
    found.device = &(*devices)[k];
    for (const RdmaPort& one : found.device->ports)
      if (one.port == nic.port) found.port = &one;
  }
  return found;
}

std::string state(const Nic& nic, const RdmaPort* port) {
  return port != nullptr ? port->state : nic.up ? "up, or not known" : "down";
}
int64_t rate_mbit(const Nic& nic, const RdmaPort* port) {
  return port != nullptr && port->speed_mbit > 0 ? port->speed_mbit : nic.speed_mbit;
}

std::string rdma_text(const RdmaDevice& device, const RdmaPort& port) {
  std::string text = line("link layer", port.link_layer);
  text += line("MTU", port.mtu > 0 ? fmt::format("{} (at most {})", port.mtu, port.mtu_max) : "not known");
  if (port.link_layer == "InfiniBand") text += line("LID", fmt::format("{}", port.lid));
  for (const auto& gid : port.gids)
    text += line("GID", fmt::format("{}: {}  {}", gid.index, gid.address, gid.type));
  if (port.gids.empty() && port.not_asked.empty()) text += line("GID", "none: no peer can address this port");
  text += line("limits", fmt::format("{} queue pairs, {} completions a queue", device.max_queue_pairs,
                                     device.max_completions));
  if (!device.firmware.empty()) text += line("firmware", device.firmware);
  for (const std::string& what : port.not_asked) text += line("not asked", what);
  return text;
}

std::string nic_text(const Machine& machine, int position, const Asked& rdma, int mtu) {
  const RdmaPort* const port = rdma.port;
  const Nic& nic = machine.nics[static_cast<size_t>(position)];
  std::string text = fmt::format("NIC {}: {}{}\n", position, nic.name,
                                 nic.port > 0 ? fmt::format(" port {}", nic.port) : "");
  text += line("state", state(nic, port));
  text += line("rate", rate_text(rate_mbit(nic, port)));
  text += line("kind", to_string(nic.kind));
  if (!nic.interface.empty()) text += line("interface", nic.interface);
  text += place(machine, nic);
  if (!machine.gpus.empty()) text += line("nearest GPUs", nearest_gpus_text(machine, position));
  if (nic.guid != 0) text += line("GUID", fmt::format("{:016x}", nic.guid));
  if (port != nullptr) return text + rdma_text(*rdma.device, *port);
  if (mtu > 0) text += line("MTU", fmt::format("{}", mtu));
  return text;
}

Json port_json(const RdmaDevice& device, const RdmaPort& port) {
  Json gids = Json::array();
  for (const auto& gid : port.gids)
    gids.push_back({{"index", gid.index}, {"address", gid.address}, {"type", gid.type}});
  return {{"link_layer", port.link_layer},
          {"mtu", port.mtu},
          {"mtu_max", port.mtu_max},
          {"lid", port.lid},
          {"gids", std::move(gids)},
          {"max_queue_pairs", device.max_queue_pairs},
          {"max_completions", device.max_completions},
          {"firmware", device.firmware},
          {"not_asked", port.not_asked}};
}

Json nic_json(const Machine& machine, int position, const Asked& rdma, int mtu) {
  const Nic& nic = machine.nics[static_cast<size_t>(position)];
  Json json{{"index", position}, {"name", nic.name}};
  if (nic.port > 0) json["port"] = nic.port;
  json["state"] = state(nic, rdma.port);
  json["rate_mbit"] = std::max<int64_t>(0, rate_mbit(nic, rdma.port));
  json["kind"] = to_string(nic.kind);
  if (!nic.interface.empty()) json["interface"] = nic.interface;
  if (nic.bus_id) json["bus_id"] = nic.bus_id->to_string();
  json["numa_node"] = numa_node(machine, nic);
  json["nearest_gpus"] = Json::array();
  for (const NearGpu& near : nearest_gpus(machine, position))
    json["nearest_gpus"].push_back({{"gpu", near.index}, {"path", near.path}});
  if (nic.guid != 0) json["guid"] = fmt::format("{:016x}", nic.guid);
  if (rdma.port != nullptr)
    json["rdma"] = port_json(*rdma.device, *rdma.port);
  else
    json["mtu"] = mtu;
  return json;
}

}  // namespace

Json nics_json(const Machine& machine, const Result<std::vector<RdmaDevice>>& devices,
               const std::vector<int>& mtus) {
  Json nics = Json::array(), not_asked = Json::array();
  for (size_t i = 0; i < machine.nics.size(); ++i)
    nics.push_back(nic_json(machine, static_cast<int>(i), asked(machine.nics[i], devices),
                            i < mtus.size() ? mtus[i] : 0));
  if (!devices.ok()) not_asked.push_back(devices.status().message());
  for (size_t i = 0; devices.ok() && i < devices->size(); ++i)
    for (const std::string& what : (*devices)[i].not_asked)
      not_asked.push_back(fmt::format("{}: {}", (*devices)[i].name, what));
  return {{"nics", std::move(nics)}, {"not_asked", std::move(not_asked)}};
}

std::string format_nics(const Machine& machine, const Result<std::vector<RdmaDevice>>& devices,
                        const std::vector<int>& mtus) {
  std::string text;
  for (size_t i = 0; i < machine.nics.size(); ++i)
    text += nic_text(machine, static_cast<int>(i), asked(machine.nics[i], devices),
                     i < mtus.size() ? mtus[i] : 0);
  if (machine.nics.empty()) text += "No network device is visible here.\n";
  if (!devices.ok())
    return text + fmt::format("RDMA devices were not asked: {}\n", devices.status().message());
  if (devices->empty()) text += "No RDMA device: the kernel has none, or this container does not show it.\n";
  for (const RdmaDevice& device : *devices)
    for (const std::string& what : device.not_asked)
      text += fmt::format("RDMA device {} was not asked: {}\n", device.name, what);
  return text;
}

std::vector<int> interface_mtus(const Machine& machine, const std::string& sysfs) {
  std::vector<int> mtus;
  for (const Nic& nic : machine.nics) {
    int mtu = 0;
    if (!nic.interface.empty()) std::ifstream(sysfs + "/" + nic.interface + "/mtu") >> mtu;
    mtus.push_back(std::max(mtu, 0));
  }
  return mtus;
}

}  // namespace epccl::tools
