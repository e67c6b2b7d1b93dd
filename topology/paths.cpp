#include "topology/paths.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

namespace epccl::topology {
namespace {

/// A NIC this many times slower than the fastest is not for GPU traffic.
constexpr double negligible_ratio = 10;
constexpr double mbit_per_gbyte = 8000;

const PciDevice& pci_at(const Machine& machine, int position) {
  return machine.pci_devices[static_cast<size_t>(position)];
}

/// The device and everything above it, upwards.
std::vector<int> ancestry(const Machine& machine, int pci) {
  std::vector<int> chain;
  for (; pci >= 0; pci = pci_at(machine, pci).parent) chain.push_back(pci);
  return chain;
}

/// The links that start at a GPU (machine.links is sorted by GPU).
std::span<const GpuLink> links_of(const Machine& machine, int gpu) {
  const auto range = std::ranges::equal_range(machine.links, gpu, {}, &GpuLink::gpu);
  return {range.begin(), range.end()};
}

GpuConnection from_to(const Machine& machine, int from, int to) {
  GpuConnection best;
  for (const GpuLink& link : links_of(machine, from))
    if (link.end == LinkEnd::gpu && link.peer == to && link.count > best.count)
      best = {link.kind, link.count, false, link.gb_per_s};
  return best;
}

/// A hand-written file may list a link from one side only.
GpuConnection direct_connection(const Machine& machine, int a, int b) {
  const GpuConnection forth = from_to(machine, a, b), back = from_to(machine, b, a);
  return forth.count >= back.count ? forth : back;
}

GpuConnection into_fabric(const Machine& machine, int gpu) {
  GpuConnection sum;
  for (const GpuLink& link : links_of(machine, gpu)) {
    if (link.end != LinkEnd::gpu_switch) continue;
    sum = {link.kind, sum.count + link.count, true, sum.gb_per_s + link.gb_per_s};
  }
  return sum;
}

}  // namespace

const char* to_string(PathClass path) {
  constexpr const char* names[] = {"LOC", "NVL", "PIX", "PXB", "PHB", "NODE", "SYS"};
  return names[static_cast<size_t>(path)];
}

GpuConnection connection(const Machine& machine, int gpu_a, int gpu_b) {
  const GpuConnection direct = direct_connection(machine, gpu_a, gpu_b);
  const GpuConnection a = into_fabric(machine, gpu_a), b = into_fabric(machine, gpu_b);
  const GpuConnection& switched = a.count <= b.count ? a : b;
  return switched.count > direct.count ? switched : direct;
}

PathClass pci_path(const Machine& machine, int pci_a, int numa_a, int pci_b, int numa_b) {
  const PathClass across = numa_a >= 0 && numa_a == numa_b ? PathClass::node : PathClass::sys;
  if (pci_a < 0 || pci_b < 0) return across;
  if (pci_a == pci_b) return PathClass::pix;

  const auto above_a = ancestry(machine, pci_a), above_b = ancestry(machine, pci_b);
  auto a = above_a.rbegin(), b = above_b.rbegin();
  int common = -1;
  for (; a != above_a.rend() && b != above_b.rend() && *a == *b; ++a, ++b) common = *a;
  if (common < 0) return across;
  if (pci_at(machine, common).kind == PciKind::host_bridge) return PathClass::phb;

  const auto is_switch = [&](int pci) { return pci_at(machine, pci).kind == PciKind::pci_switch; };
  const auto switches = (is_switch(common) ? 1 : 0) + std::count_if(a, above_a.rend(), is_switch) +
                        std::count_if(b, above_b.rend(), is_switch);
  return switches <= 1 ? PathClass::pix : PathClass::pxb;
}

PathClass gpu_path(const Machine& machine, int gpu_a, int gpu_b) {
  if (gpu_a == gpu_b) return PathClass::loc;
  if (connection(machine, gpu_a, gpu_b).count > 0) return PathClass::nvl;
  const Gpu &a = machine.gpus[static_cast<size_t>(gpu_a)], &b = machine.gpus[static_cast<size_t>(gpu_b)];
  return pci_path(machine, a.pci, a.numa, b.pci, b.numa);
}

PathClass gpu_nic_path(const Machine& machine, int gpu, int nic) {
  const Gpu& a = machine.gpus[static_cast<size_t>(gpu)];
  const Nic& b = machine.nics[static_cast<size_t>(nic)];
  return pci_path(machine, a.pci, a.numa, b.pci, b.numa);
}

PathClass nic_path(const Machine& machine, int nic_a, int nic_b) {
  if (nic_a == nic_b) return PathClass::loc;
  const Nic &a = machine.nics[static_cast<size_t>(nic_a)], &b = machine.nics[static_cast<size_t>(nic_b)];
  return pci_path(machine, a.pci, a.numa, b.pci, b.numa);
}

std::vector<int> pci_links(const Machine& machine, int pci_a, int pci_b) {
  if (pci_a < 0 || pci_b < 0 || pci_a == pci_b) return {};
  auto a = ancestry(machine, pci_a), b = ancestry(machine, pci_b);
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.pop_back();
    b.pop_back();
  }
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int> pci_links_to_cpu(const Machine& machine, int pci) {
  std::vector<int> links = ancestry(machine, pci);
  std::erase_if(links, [&](int link) { return pci_at(machine, link).kind == PciKind::host_bridge; });
  return links;
}

double nic_gb_per_s(const Machine& machine, int nic) {
  const Nic& device = machine.nics[static_cast<size_t>(nic)];
  const double own = static_cast<double>(device.speed_mbit) / mbit_per_gbyte;
  const double pcie = device.pci < 0 ? 0 : pci_at(machine, device.pci).gb_per_s;
  if (own <= 0 || pcie <= 0) return std::max(own, pcie);
  return std::min(own, pcie);
}

namespace {

/// NICs worth considering, see nearest_nics().
std::vector<int> candidates(const Machine& machine) {
  const auto& nics = machine.nics;
  const bool any_up = std::any_of(nics.begin(), nics.end(), [](const Nic& nic) { return nic.up; });
  std::vector<int> usable;
  double fastest = 0;
  for (size_t i = 0; i < nics.size(); ++i) {
    if (any_up && !nics[i].up) continue;
    usable.push_back(static_cast<int>(i));
    fastest = std::max(fastest, nic_gb_per_s(machine, static_cast<int>(i)));
  }
  std::erase_if(usable, [&](int nic) {
    const double rate = nic_gb_per_s(machine, nic);
    return rate > 0 && rate * negligible_ratio < fastest;
  });
  return usable;
}

}  // namespace

std::vector<int> nearest_nics(const Machine& machine, int gpu) {
  std::vector<int> best;
  PathClass best_path = PathClass::sys;
  double best_rate = 0;
  for (const int nic : candidates(machine)) {
    const PathClass path = gpu_nic_path(machine, gpu, nic);
    const double rate = nic_gb_per_s(machine, nic);
    const bool better = best.empty() || path < best_path || (path == best_path && rate > best_rate);
    if (better) {
      best.clear();
      best_path = path;
      best_rate = rate;
    }
    if (path == best_path && rate == best_rate) best.push_back(nic);
  }
  return best;
}

std::vector<int> fastest_nics(const Machine& machine) {
  const std::vector<int> usable = candidates(machine);
  double fastest = 0;
  for (const int nic : usable) fastest = std::max(fastest, nic_gb_per_s(machine, nic));
  std::vector<int> best;
  for (const int nic : usable)
    if (nic_gb_per_s(machine, nic) == fastest) best.push_back(nic);
  return best;
}

std::vector<std::vector<int>> deal_nics(const std::vector<int>& nics, size_t users) {
  std::vector<std::vector<int>> dealt(users);
  if (nics.empty() || users == 0) return dealt;
  const size_t each = nics.size() / users;
  for (size_t user = 0; user < users; ++user) {
    if (nics.size() <= users) {
      dealt[user] = {nics[user % nics.size()]};
      continue;
    }
    const auto own = nics.begin() + static_cast<std::ptrdiff_t>(user * each);
    dealt[user].assign(own, own + static_cast<std::ptrdiff_t>(each));
    dealt[user].insert(dealt[user].end(), nics.begin() + static_cast<std::ptrdiff_t>(users * each),
                       nics.end());
  }
  return dealt;
}

std::vector<std::vector<int>> share_nics(const Machine& machine, const std::vector<int>& gpus) {
  std::map<std::vector<int>, std::vector<size_t>> users;
  for (size_t i = 0; i < gpus.size(); ++i) users[nearest_nics(machine, gpus[i])].push_back(i);
  std::vector<std::vector<int>> result(gpus.size());
  for (const auto& [nics, positions] : users) {
    auto dealt = deal_nics(nics, positions.size());
    for (size_t turn = 0; turn < positions.size(); ++turn) result[positions[turn]] = std::move(dealt[turn]);
  }
  return result;
}

std::vector<int> assign_nics(const Machine& machine) {
  std::vector<int> gpus(machine.gpus.size()), first;
  std::iota(gpus.begin(), gpus.end(), 0);
  for (const auto& nics : share_nics(machine, gpus)) first.push_back(nics.empty() ? -1 : nics.front());
  return first;
}

std::vector<LocalPlace> place_ranks(const Machine& machine, int ranks) {
  const auto count = static_cast<size_t>(std::max(ranks, 0));
  std::vector<int> gpus(std::min(count, machine.gpus.size()));
  std::iota(gpus.begin(), gpus.end(), 0);
  const auto nics = gpus.empty() ? deal_nics(fastest_nics(machine), count) : share_nics(machine, gpus);
  std::vector<LocalPlace> places(count);
  for (size_t local = 0; local < count; ++local) {
    if (!gpus.empty()) places[local].gpu = gpus[local % gpus.size()];
    places[local].nics = nics[local % nics.size()];
  }
  return places;
}

}  // namespace epccl::topology
