#include <algorithm>
#include <vector>

#include "topology/machine_printer.hpp"
#include "topology/paths.hpp"

namespace epccl::topology {
namespace {

std::string rate(double gb_per_s) {
  return gb_per_s > 0 ? fmt::format("  {:.1f} GB/s", gb_per_s) : "";
}

std::string speed(int64_t mbit) {
  if (mbit <= 0) return "";
  return mbit % 1000 == 0 ? fmt::format("  {} Gbit/s", mbit / 1000) : fmt::format("  {} Mbit/s", mbit);
}

std::string describe(const Nic& nic) {
  std::string text = fmt::format("NIC {}", nic.name);
  if (!nic.interface.empty() && nic.interface != nic.name) text += fmt::format(" ({})", nic.interface);
  if (nic.kind != NicKind::unknown) text += fmt::format("  {}", to_string(nic.kind));
  if (nic.port > 0) text += fmt::format("  port {}", nic.port);
  text += speed(nic.speed_mbit);
  return nic.up ? text : text + "  down";
}

class TreePrinter {
 public:
  explicit TreePrinter(const Machine& machine)
      : machine_(machine), nic_of_gpu_(assign_nics(machine)), interesting_(machine.pci_devices.size()) {
    for (size_t i = 0; i < machine.pci_devices.size(); ++i) {
      const int parent = machine.pci_devices[i].parent;
      if (parent >= 0) children(parent).push_back(static_cast<int>(i));
    }
    for (const Gpu& gpu : machine.gpus) mark(gpu.pci);
    for (const Nic& nic : machine.nics) mark(nic.pci);
    for (const GpuSwitch& gpu_switch : machine.switches) mark(gpu_switch.pci);
  }

  std::string print() && {
    line(0, "{}  [{}]", machine_.name.empty() ? "machine" : machine_.name, machine_.source);
    for (size_t i = 0; i < machine_.numa_nodes.size(); ++i) {
      const NumaNode& node = machine_.numa_nodes[i];
      std::string text = fmt::format("NUMA node {}", node.os_index);
      if (!node.cpus.empty()) text += fmt::format("  CPUs {}", format_cpu_list(node.cpus));
      if (node.memory_bytes > 0)
        text += fmt::format("  {:.1f} GiB", static_cast<double>(node.memory_bytes) / (1 << 30));
      line(1, "{}", text);
      print_below(static_cast<int>(i));
    }
    if (has_anything(-1)) {
      line(1, "near no single NUMA node");
      print_below(-1);
    }
    for (const GpuSwitch& gpu_switch : machine_.switches)
      if (gpu_switch.pci < 0) line(1, "GPU switch {}", gpu_switch.id);
    return std::move(text_);
  }

 private:
  template <typename... Args>
  void line(int depth, fmt::format_string<Args...> format, Args&&... args) {
    text_.append(static_cast<size_t>(depth) * 2, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }

  std::vector<int>& children(int pci) {
    if (children_.empty()) children_.resize(machine_.pci_devices.size());
    return children_[static_cast<size_t>(pci)];
  }

  void mark(int pci) {
    for (; pci >= 0 && !interesting_[static_cast<size_t>(pci)];
         pci = machine_.pci_devices[static_cast<size_t>(pci)].parent)
      interesting_[static_cast<size_t>(pci)] = true;
  }

  bool is_shown_root(size_t pci, int numa) const {
    const PciDevice& device = machine_.pci_devices[pci];
    return device.parent < 0 && device.numa == numa && interesting_[pci];
  }

  bool has_anything(int numa) const {
    for (size_t i = 0; i < machine_.pci_devices.size(); ++i)
      if (is_shown_root(i, numa)) return true;
    const auto off_pci = [&](const auto& device) { return device.pci < 0 && device.numa == numa; };
    return std::any_of(machine_.gpus.begin(), machine_.gpus.end(), off_pci) ||
           std::any_of(machine_.nics.begin(), machine_.nics.end(), off_pci);
  }

  void print_below(int numa) {
    for (size_t i = 0; i < machine_.pci_devices.size(); ++i)
      if (is_shown_root(i, numa)) print_pci(static_cast<int>(i), 2);
    for (size_t i = 0; i < machine_.gpus.size(); ++i)
      if (machine_.gpus[i].pci < 0 && machine_.gpus[i].numa == numa) print_gpu(i, 2, 0);
    for (const Nic& nic : machine_.nics)
      if (nic.pci < 0 && nic.numa == numa) line(2, "{}", describe(nic));
  }

  void print_pci(int position, int depth) {
    const PciDevice& device = machine_.pci_devices[static_cast<size_t>(position)];
    const std::string id = device.bus_id.to_string();
    if (device.kind == PciKind::host_bridge) {
      line(depth, "host bridge {:04x}:{:02x}", device.bus_id.domain, device.bus_id.bus);
    } else if (device.kind != PciKind::endpoint) {
      line(depth, "{} {}{}", device.kind == PciKind::port ? "port" : "switch", id, rate(device.gb_per_s));
    }
    for (size_t i = 0; i < machine_.gpus.size(); ++i)
      if (machine_.gpus[i].pci == position) print_gpu(i, depth, device.gb_per_s);
    for (const Nic& nic : machine_.nics) {
      if (nic.pci != position) continue;
      const std::string where = nic.name == id ? "" : "  " + id;
      line(depth, "{}{}{}", describe(nic), where, rate(device.gb_per_s));
    }
    for (const GpuSwitch& gpu_switch : machine_.switches)
      if (gpu_switch.pci == position) line(depth, "GPU switch {}", id);
    for (const int child : children(position))
      if (interesting_[static_cast<size_t>(child)]) print_pci(child, depth + 1);
  }

  void print_gpu(size_t position, int depth, double gb_per_s) {
    const Gpu& gpu = machine_.gpus[position];
    std::string text = fmt::format("GPU {}  {}", gpu.index, gpu.bus_id.to_string());
    if (gpu.vendor != Vendor::unknown) text += fmt::format("  {}", to_string(gpu.vendor));
    for (const std::string* part : {&gpu.model, &gpu.arch})
      if (!part->empty()) text += fmt::format("  {}", *part);
    text += rate(gb_per_s);
    if (const int nic = nic_of_gpu_[position]; nic >= 0)
      text += fmt::format("  -> {} ({})", machine_.nics[static_cast<size_t>(nic)].name,
                          to_string(gpu_nic_path(machine_, static_cast<int>(position), nic)));
    line(depth, "{}", text);
  }

  const Machine& machine_;
  std::vector<int> nic_of_gpu_;
  std::vector<bool> interesting_;  // PCI devices with a GPU, NIC or GPU switch at or below them
  std::vector<std::vector<int>> children_;
  std::string text_;
};

std::string links_of_gpu(const Machine& machine, int gpu) {
  int to_switches = 0, switches = 0;
  double gb_per_s = 0;
  std::string text;
  const char* unit = "";
  for (const GpuLink& link : machine.links) {
    if (link.gpu != gpu) continue;
    unit = link.kind == LinkKind::nvlink ? "NVLink" : "xGMI";
    gb_per_s += link.gb_per_s;
    if (link.end == LinkEnd::gpu_switch) {
      to_switches += link.count;
      ++switches;
      continue;
    }
    const std::string peer = link.end == LinkEnd::cpu
                                 ? "CPU"
                                 : fmt::format("GPU {}", machine.gpus[static_cast<size_t>(link.peer)].index);
    text += fmt::format("{}{} x{}", text.empty() ? "" : ", ", peer, link.count);
  }
  if (switches > 0)
    text += fmt::format("{}{} to {} switches", text.empty() ? "" : ", ", to_switches, switches);
  return text.empty() ? "" : fmt::format("{}: {}{}", unit, text, rate(gb_per_s));
}

}  // namespace

std::string format_links(const Machine& machine) {
  std::string text;
  for (size_t i = 0; i < machine.gpus.size(); ++i) {
    const std::string links = links_of_gpu(machine, static_cast<int>(i));
    if (!links.empty()) text += fmt::format("GPU {}  {}\n", machine.gpus[i].index, links);
  }
  return text;
}

std::string format_tree(const Machine& machine) {
  std::string text = TreePrinter(machine).print();
  if (const std::string links = format_links(machine); !links.empty()) text += "\nGPU links\n" + links;
  if (!machine.notes.empty()) text += "\nNotes\n";
  for (const std::string& note : machine.notes) text += fmt::format("  {}\n", note);
  return text;
}

}  // namespace epccl::topology
