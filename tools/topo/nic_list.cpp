#include "topo/nic_list.hpp"

#include <algorithm>
#include <fstream>

#include "topology/paths.hpp"

namespace epccl::tools {
namespace {

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

/// "GPU 0 (PIX), GPU 1 (PIX)": those for whom this is one of the nearest NICs.
std::string nearest_gpus(const Machine& machine, int nic) {
  std::string text;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const int gpu = static_cast<int>(i);
    const auto nearest = topology::nearest_nics(machine, gpu);
    if (std::ranges::find(nearest, nic) == nearest.end()) continue;
    text += fmt::format("{}GPU {} ({})", text.empty() ? "" : ", ", machine.gpus[i].index,
                        to_string(topology::gpu_nic_path(machine, gpu, nic)));
  }
  return text.empty() ? "none" : text;
}

std::string place(const Machine& machine, const Nic& nic) {
  std::string text;
  if (nic.bus_id) text += line("bus id", nic.bus_id->to_string());
  const bool known = nic.numa >= 0 && machine.numa_nodes[static_cast<size_t>(nic.numa)].os_index >= 0;
  return text + line("NUMA node",
                     known ? fmt::format("{}", machine.numa_nodes[static_cast<size_t>(nic.numa)].os_index)
                           : "not known");
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

std::string nic_text(const Machine& machine, int position, const RdmaDevice* device, const RdmaPort* port,
                     int mtu) {
  const Nic& nic = machine.nics[static_cast<size_t>(position)];
  std::string text = fmt::format("NIC {}: {}{}\n", position, nic.name,
                                 nic.port > 0 ? fmt::format(" port {}", nic.port) : "");
  text += line("state", port != nullptr ? port->state : nic.up ? "up, or not known" : "down");
  text +=
      line("rate", rate_text(port != nullptr && port->speed_mbit > 0 ? port->speed_mbit : nic.speed_mbit));
  text += line("kind", to_string(nic.kind));
  if (!nic.interface.empty()) text += line("interface", nic.interface);
  text += place(machine, nic);
  if (!machine.gpus.empty()) text += line("nearest GPUs", nearest_gpus(machine, position));
  if (nic.guid != 0) text += line("GUID", fmt::format("{:016x}", nic.guid));
  if (port != nullptr) return text + rdma_text(*device, *port);
  if (mtu > 0) text += line("MTU", fmt::format("{}", mtu));
  return text;
}

}  // namespace

std::string format_nics(const Machine& machine, const Result<std::vector<RdmaDevice>>& devices,
                        const std::vector<int>& mtus) {
  std::string text;
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const Nic& nic = machine.nics[i];
    const RdmaDevice* device = nullptr;
    const RdmaPort* port = nullptr;
    for (size_t k = 0; devices.ok() && k < devices->size(); ++k) {
      if ((*devices)[k].name != nic.rdma_device) continue;
      device = &(*devices)[k];
      for (const RdmaPort& one : device->ports)
        if (one.port == nic.port) port = &one;
    }
    text += nic_text(machine, static_cast<int>(i), device, port, i < mtus.size() ? mtus[i] : 0);
  }
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
