#include "topology/rail_plan.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>

#include "topology/fair_rates.hpp"
#include "topology/rail_words.hpp"

namespace epccl::topology {
namespace {

/// What limits flows: NIC ports and PCI links, numbered as they are first met.
class Limits {
 public:
  explicit Limits(const Machine& machine) : machine_(machine) {}

  /// The links that a flow between a GPU (-1: host memory) and a NIC crosses.
  std::vector<size_t> between(int gpu, int nic) {
    std::set<size_t> links;
    const Nic& device = machine_.nics[static_cast<size_t>(nic)];
    links.insert(number({true, nic}, static_cast<double>(device.speed_mbit) / 8000));
    const int from = gpu < 0 ? -1 : machine_.gpus[static_cast<size_t>(gpu)].pci;
    // A GPU whose place is not known is taken to be as far away as host memory.
    for (const int pci :
         from < 0 ? pci_links_to_cpu(machine_, device.pci) : pci_links(machine_, from, device.pci))
      add(links, pci);
    return {links.begin(), links.end()};
  }

  const std::vector<double>& capacities() const { return capacities_; }

 private:
  using Key = std::pair<bool, int>;  // whether it is a NIC, and which

  void add(std::set<size_t>& links, int pci) {
    links.insert(number({false, card_of(pci)}, machine_.pci_devices[static_cast<size_t>(pci)].gb_per_s));
  }

  /// Functions of one card have one link.
  int card_of(int pci) const {
    const PciDevice& device = machine_.pci_devices[static_cast<size_t>(pci)];
    if (device.kind != PciKind::endpoint) return pci;
    const auto same = [&](const PciDevice& other) {
      return other.kind == PciKind::endpoint && other.parent == device.parent &&
             std::tuple(other.bus_id.domain, other.bus_id.bus, other.bus_id.device) ==
                 std::tuple(device.bus_id.domain, device.bus_id.bus, device.bus_id.device);
    };
    return static_cast<int>(std::ranges::find_if(machine_.pci_devices, same) - machine_.pci_devices.begin());
  }

  size_t number(Key key, double gb_per_s) {
    const auto [it, is_new] = numbers_.try_emplace(key, capacities_.size());
    if (is_new) capacities_.push_back(gb_per_s > 0 ? gb_per_s : std::numeric_limits<double>::infinity());
    return it->second;
  }

  const Machine& machine_;
  std::map<Key, size_t> numbers_;
  std::vector<double> capacities_;
};

/// Fills in what each position gets alone, and when all send; and what the node gets.
void set_rates(const Machine& machine, RailPlan& plan) {
  Limits limits(machine);
  std::vector<std::vector<size_t>> flows;
  std::vector<size_t> owner;
  for (size_t local = 0; local < plan.places.size(); ++local) {
    RailPlace& place = plan.places[local];
    std::vector<std::vector<size_t>> own;
    for (const int nic : place.nics) own.push_back(limits.between(place.gpu, nic));
    for (const double rate : fair_rates(own, limits.capacities())) place.alone_gb_per_s += rate;
    for (auto& flow : own) {
      flows.push_back(std::move(flow));
      owner.push_back(local);
    }
  }
  const std::vector<double> rates = fair_rates(flows, limits.capacities());
  for (size_t flow = 0; flow < flows.size(); ++flow) plan.places[owner[flow]].gb_per_s += rates[flow];
  for (const RailPlace& place : plan.places) plan.node_gb_per_s += place.gb_per_s;
}

bool crosses_cpu(PathClass path) {
  return path > PathClass::pxb;
}

RailReason reason_of(const RailPlace& place, size_t nearest, const std::map<int, std::set<int>>& users) {
  if (place.nics.empty()) return RailReason::no_nic;
  if (place.gpu < 0) return RailReason::any;
  const auto shared = std::ranges::count_if(place.nics, [&](int nic) { return users.at(nic).size() > 1; });
  if (place.nics.size() == 1) {
    if (shared > 0) return RailReason::shared;
    return nearest > 1 ? RailReason::turn : RailReason::nearest;
  }
  return shared > 0 ? RailReason::partly_shared : RailReason::striped;
}

/// A GPU that this one has a link to, and that reaches its NIC without a CPU; the least asked so far.
int better_relay(const Machine& machine, const RailPlan& plan, const RailPlace& place,
                 std::map<int, int>& asked) {
  if (place.gpu < 0 || place.nics.empty() || !place.through_cpu) return -1;
  int best = -1;
  // The first place of each GPU; others have the same GPUs again.
  for (const RailPlace& other :
       std::span(plan.places).first(std::min(plan.places.size(), machine.gpus.size()))) {
    if (other.gpu < 0 || other.gpu == place.gpu || other.nics.empty() || other.through_cpu) continue;
    if (connection(machine, place.gpu, other.gpu).count == 0) continue;
    if (best < 0 || asked[other.local] < asked[best]) best = other.local;
  }
  if (best >= 0) ++asked[best];
  return best;
}

void set_reasons(const Machine& machine, RailPlan& plan) {
  std::map<int, std::set<int>> users;  // of a NIC: GPUs, or positions without one
  for (const RailPlace& place : plan.places)
    for (const int nic : place.nics) users[nic].insert(place.gpu >= 0 ? place.gpu : place.local);
  std::map<int, int> asked;
  for (RailPlace& place : plan.places) {
    const size_t nearest = place.gpu < 0 ? 0 : nearest_nics(machine, place.gpu).size();
    place.reason = reason_of(place, nearest, users);
    place.better_relay = better_relay(machine, plan, place, asked);
  }
  for (RailPlace& place : plan.places) place.why = explain_place(machine, plan, place);
}

void set_rails(const Machine& machine, RailPlan& plan) {
  std::vector<std::vector<int>> users(machine.nics.size());
  for (const RailPlace& place : plan.places)
    for (const int nic : place.nics) users[static_cast<size_t>(nic)].push_back(place.local);
  for (size_t nic = 0; nic < users.size(); ++nic) {
    const int position = static_cast<int>(nic);
    if (users[nic].empty())
      plan.unused.push_back({position, explain_unused(machine, position)});
    else
      plan.rails.push_back({position, std::move(users[nic]), nic_gb_per_s(machine, position)});
  }
}

}  // namespace

const char* to_string(RailReason reason) {
  constexpr const char* names[] = {"nearest", "turn", "striped", "partly_shared", "shared", "any", "no_nic"};
  return names[static_cast<size_t>(reason)];
}

Result<RailPlan> plan_rails(const Machine& machine, int nodes, int ranks_per_node) {
  if (nodes < 1 || ranks_per_node < 1)
    return error(Code::invalid_argument, "a rail plan for {} nodes of {} ranks", nodes, ranks_per_node);
  RailPlan plan;
  plan.nodes = nodes;
  for (LocalPlace& own : place_ranks(machine, ranks_per_node)) {
    RailPlace place;
    place.local = static_cast<int>(plan.places.size());
    place.gpu = own.gpu;
    place.nics = std::move(own.nics);
    if (place.gpu >= 0 && !place.nics.empty())
      place.path = gpu_nic_path(machine, place.gpu, place.nics.front());
    place.through_cpu = place.nics.empty() || crosses_cpu(place.path);
    plan.places.push_back(std::move(place));
  }
  set_rates(machine, plan);
  set_rails(machine, plan);
  set_reasons(machine, plan);
  plan.notes = explain_plan(machine, plan);
  return plan;
}

Result<RailPlace> place_of_rank(const Machine& machine, int nodes, int ranks_per_node, int local,
                                const std::optional<BusId>& gpu) {
  const auto used = gpu ? std::ranges::find(machine.gpus, *gpu, &Gpu::bus_id) : machine.gpus.end();
  const bool by_gpu = used != machine.gpus.end();
  const int ranks = by_gpu ? static_cast<int>(machine.gpus.size()) : ranks_per_node;
  const auto position = by_gpu ? used - machine.gpus.begin() : local;
  EPCCL_ASSIGN(RailPlan plan, plan_rails(machine, nodes, ranks));
  if (position < 0 || position >= ranks)
    return error(Code::invalid_argument, "a rail for position {} of {} ranks on a node", position, ranks);
  return std::move(plan.places[static_cast<size_t>(position)]);
}

std::vector<RailGroup> rail_groups(const RailPlan& plan) {
  std::vector<RailGroup> groups;
  for (const RailPlace& place : plan.places) {
    RailGroup merged{place.nics, {place.local}, place.gb_per_s};
    const auto touches = [&](const RailGroup& group) {
      if (place.nics.empty()) return group.nics.empty();
      return std::ranges::any_of(
          place.nics, [&](int nic) { return std::ranges::find(group.nics, nic) != group.nics.end(); });
    };
    for (const RailGroup& group : groups) {
      if (!touches(group)) continue;
      merged.nics.insert(merged.nics.end(), group.nics.begin(), group.nics.end());
      merged.locals.insert(merged.locals.end(), group.locals.begin(), group.locals.end());
      merged.gb_per_s += group.gb_per_s;
    }
    std::erase_if(groups, touches);
    std::ranges::sort(merged.nics);
    merged.nics.erase(std::ranges::unique(merged.nics).begin(), merged.nics.end());
    std::ranges::sort(merged.locals);
    groups.push_back(std::move(merged));
  }
  std::ranges::sort(groups, {}, [](const RailGroup& group) { return group.locals.front(); });
  return groups;
}

}  // namespace epccl::topology
