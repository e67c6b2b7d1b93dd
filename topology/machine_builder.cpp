#include "topology/machine_builder.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "topology/pci_ids.hpp"

namespace epccl::topology {
namespace {

Status too_many(const char* what, size_t limit) {
  return error(Code::invalid_argument, "more than {} {}", limit, what);
}

/// Moves `values` into the order given by positions.
template <typename T>
std::vector<T> reordered(std::vector<T>& values, const std::vector<size_t>& positions) {
  std::vector<T> result;
  result.reserve(values.size());
  for (const size_t position : positions) result.push_back(std::move(values[position]));
  return result;
}

std::vector<size_t> positions_of(size_t size) {
  std::vector<size_t> positions(size);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

}  // namespace

Result<int> MachineBuilder::add_numa_node(NumaNode node) {
  if (machine_.numa_nodes.size() >= MachineLimits::numa_nodes)
    return too_many("NUMA nodes", MachineLimits::numa_nodes);
  const auto same = [&](const NumaNode& other) { return other.os_index == node.os_index; };
  if (std::any_of(machine_.numa_nodes.begin(), machine_.numa_nodes.end(), same))
    return error(Code::invalid_argument, "NUMA node {} appears twice", node.os_index);
  machine_.numa_nodes.push_back(std::move(node));
  return static_cast<int>(machine_.numa_nodes.size()) - 1;
}

Result<int> MachineBuilder::add_pci_device(const PciDevice& device) {
  if (machine_.pci_devices.size() >= MachineLimits::pci_devices)
    return too_many("PCI devices", MachineLimits::pci_devices);
  const int position = static_cast<int>(machine_.pci_devices.size());
  if (device.kind != PciKind::host_bridge && !pci_by_id_.try_emplace(device.bus_id, position).second)
    return error(Code::invalid_argument, "PCI bus id {} appears twice", device.bus_id.to_string());
  machine_.pci_devices.push_back(device);
  return position;
}

int MachineBuilder::find_pci_device(const BusId& id) const {
  const auto found = pci_by_id_.find(id);
  return found == pci_by_id_.end() ? -1 : found->second;
}

Status MachineBuilder::add_gpu(Gpu gpu, std::optional<int> index) {
  if (machine_.gpus.size() >= MachineLimits::gpus) return too_many("GPUs", MachineLimits::gpus);
  if (!gpu_by_id_.try_emplace(gpu.bus_id, static_cast<int>(machine_.gpus.size())).second)
    return error(Code::invalid_argument, "two GPUs have the bus id {}", gpu.bus_id.to_string());
  if (gpu.pci >= 0) {
    const PciDevice& pci = machine_.pci_devices[static_cast<size_t>(gpu.pci)];
    if (gpu.vendor == Vendor::unknown) gpu.vendor = gpu_vendor(pci.vendor);
    if (gpu.numa < 0) gpu.numa = pci.numa;
    if (const GpuModel* known = find_gpu_model(pci.vendor, pci.device)) {
      if (gpu.model.empty()) gpu.model = known->model;
      if (gpu.arch.empty()) gpu.arch = known->arch;
    }
  }
  machine_.gpus.push_back(std::move(gpu));
  gpu_indices_.push_back(index);
  return {};
}

Gpu* MachineBuilder::find_gpu(const BusId& id) {
  const auto found = gpu_by_id_.find(id);
  return found == gpu_by_id_.end() ? nullptr : &machine_.gpus[static_cast<size_t>(found->second)];
}

Status MachineBuilder::add_nic(Nic nic, std::optional<int> order) {
  if (machine_.nics.size() >= MachineLimits::nics) return too_many("NICs", MachineLimits::nics);
  if (nic.pci >= 0) {
    const PciDevice& pci = machine_.pci_devices[static_cast<size_t>(nic.pci)];
    if (nic.kind == NicKind::unknown) nic.kind = nic_kind(pci.pci_class, pci.vendor, pci.device);
    if (nic.numa < 0) nic.numa = pci.numa;
    nic.bus_id = pci.bus_id;
  }
  if (nic.name.empty()) nic.name = nic.rdma_device;
  if (nic.name.empty()) nic.name = nic.interface;
  if (nic.name.empty() && nic.bus_id) nic.name = nic.bus_id->to_string();
  machine_.nics.push_back(std::move(nic));
  nic_orders_.push_back(order);
  return {};
}

void MachineBuilder::remove_nics(const std::function<bool(const Nic&)>& unwanted) {
  std::vector<Nic> nics;
  std::vector<std::optional<int>> orders;
  for (size_t i = 0; i < machine_.nics.size(); ++i) {
    if (unwanted(machine_.nics[i])) continue;
    nics.push_back(std::move(machine_.nics[i]));
    orders.push_back(nic_orders_[i]);
  }
  machine_.nics = std::move(nics);
  nic_orders_ = std::move(orders);
}

Status MachineBuilder::add_switch(const std::string& id) {
  for (const GpuSwitch& known : machine_.switches)
    if (known.id == id) return {};
  if (machine_.switches.size() >= MachineLimits::switches)
    return too_many("switches", MachineLimits::switches);
  const auto bus_id = BusId::parse(id);
  machine_.switches.push_back({id, bus_id ? find_pci_device(*bus_id) : -1});
  return {};
}

Status MachineBuilder::add_link(const BusId& gpu, LinkKind kind, LinkEnd end, const std::string& target,
                                int count, double gb_per_s) {
  if (pending_links_.size() >= MachineLimits::links) return too_many("GPU links", MachineLimits::links);
  if (count < 1 || count > MachineLimits::links_to_a_neighbour)
    return error(Code::invalid_argument, "{} {} links from {} to {}", count, to_string(kind), gpu.to_string(),
                 target);
  pending_links_.push_back({gpu, kind, end, target, count, gb_per_s});
  return {};
}

Result<Machine> MachineBuilder::build() && {
  EPCCL_TRY(number_gpus());
  order_nics();
  EPCCL_TRY(resolve_links());
  return std::move(machine_);
}

Status MachineBuilder::number_gpus() {
  auto& gpus = machine_.gpus;
  const bool numbered = std::all_of(gpu_indices_.begin(), gpu_indices_.end(),
                                    [](const auto& index) { return index.has_value(); });
  auto positions = positions_of(gpus.size());
  std::sort(positions.begin(), positions.end(), [&](size_t a, size_t b) {
    return numbered ? *gpu_indices_[a] < *gpu_indices_[b] : gpus[a].bus_id < gpus[b].bus_id;
  });
  for (size_t i = 0; i < positions.size(); ++i) {
    if (numbered && i > 0 && *gpu_indices_[positions[i]] == *gpu_indices_[positions[i - 1]])
      return error(Code::invalid_argument, "two GPUs have the number {}", *gpu_indices_[positions[i]]);
    gpus[positions[i]].index = numbered ? *gpu_indices_[positions[i]] : static_cast<int>(i);
  }
  gpus = reordered(gpus, positions);
  for (size_t i = 0; i < gpus.size(); ++i) gpu_by_id_[gpus[i].bus_id] = static_cast<int>(i);
  return {};
}

void MachineBuilder::order_nics() {
  auto& nics = machine_.nics;
  auto positions = positions_of(nics.size());
  const auto key = [&](size_t i) {
    return std::tuple(nic_orders_[i].value_or(std::numeric_limits<int>::max()), !nics[i].bus_id.has_value(),
                      nics[i].bus_id.value_or(BusId{}), nics[i].port);
  };
  std::stable_sort(positions.begin(), positions.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  nics = reordered(nics, positions);
}

Status MachineBuilder::resolve_links() {
  for (const PendingLink& pending : pending_links_)
    if (pending.end == LinkEnd::gpu_switch) EPCCL_TRY(add_switch(pending.target));
  std::sort(machine_.switches.begin(), machine_.switches.end(),
            [](const GpuSwitch& a, const GpuSwitch& b) { return a.id < b.id; });

  for (const PendingLink& pending : pending_links_) {
    GpuLink link{pending.kind, -1, pending.end, -1, pending.count, pending.gb_per_s};
    const auto owner = gpu_by_id_.find(pending.gpu);
    if (owner == gpu_by_id_.end())
      return error(Code::invalid_argument, "{} has {} links but is no GPU", pending.gpu.to_string(),
                   to_string(pending.kind));
    link.gpu = owner->second;
    EPCCL_ASSIGN(link.peer, resolve_link_target(pending));
    if (link.peer < 0 && link.end != LinkEnd::cpu) {
      note(fmt::format("{} link of GPU {} to {}: no such device here", to_string(pending.kind),
                       pending.gpu.to_string(), pending.target));
      continue;
    }
    if (link.gb_per_s == 0) {
      const std::string& arch = machine_.gpus[static_cast<size_t>(link.gpu)].arch;
      const GpuLinkRate rate = gpu_link_rate(link.kind, arch);
      link.gb_per_s = link.count * rate.gb_per_s;
      link.guessed = !rate.known;
      if (!rate.known) note_guess(link.kind, arch, rate);
    }
    machine_.links.push_back(link);
  }
  merge_links();
  return {};
}

/// Once for each architecture.
void MachineBuilder::note_guess(LinkKind kind, const std::string& arch, const GpuLinkRate& rate) {
  const std::string like = rate.like.empty() ? "most" : fmt::format("those of {}", rate.like);
  std::string text =
      fmt::format("the rate of {} links of {} is not known: {:.0f} GB/s a link are taken, as {} have",
                  to_string(kind), arch.empty() ? "GPUs of an unknown kind" : arch, rate.gb_per_s, like);
  if (std::ranges::find(machine_.notes, text) == machine_.notes.end()) note(std::move(text));
}

Result<int> MachineBuilder::resolve_link_target(const PendingLink& pending) {
  if (pending.end == LinkEnd::cpu) return -1;
  if (pending.end == LinkEnd::gpu_switch) {
    const auto& switches = machine_.switches;
    const auto found = std::find_if(switches.begin(), switches.end(),
                                    [&](const GpuSwitch& known) { return known.id == pending.target; });
    return static_cast<int>(found - switches.begin());
  }
  const auto id = BusId::parse(pending.target);
  if (!id)
    return error(Code::invalid_argument, "{} link of GPU {}: \"{}\" is no PCI bus id",
                 to_string(pending.kind), pending.gpu.to_string(), pending.target);
  if (*id == pending.gpu)
    return error(Code::invalid_argument, "GPU {} has a {} link to itself", pending.gpu.to_string(),
                 to_string(pending.kind));
  if (const auto found = gpu_by_id_.find(*id); found != gpu_by_id_.end()) return found->second;
  if (find_pci_device(*id) >= 0)
    return error(Code::invalid_argument, "{} link of GPU {}: {} is no GPU", to_string(pending.kind),
                 pending.gpu.to_string(), pending.target);
  return -1;
}

void MachineBuilder::merge_links() {
  auto& links = machine_.links;
  const auto key = [](const GpuLink& link) { return std::tuple(link.gpu, link.end, link.peer, link.kind); };
  std::sort(links.begin(), links.end(), [&](const GpuLink& a, const GpuLink& b) { return key(a) < key(b); });
  std::vector<GpuLink> merged;
  for (const GpuLink& link : links) {
    if (merged.empty() || key(merged.back()) != key(link)) {
      merged.push_back(link);
      continue;
    }
    merged.back().count += link.count;
    merged.back().gb_per_s += link.gb_per_s;
    merged.back().guessed |= link.guessed;
  }
  links = std::move(merged);
}

}  // namespace epccl::topology
