#include "topology/rail_words.hpp"

#include <algorithm>
#include <set>

namespace epccl::topology {
namespace {

const Nic& nic_at(const Machine& machine, int nic) {
  return machine.nics[static_cast<size_t>(nic)];
}

int gpu_number(const Machine& machine, int gpu) {
  return machine.gpus[static_cast<size_t>(gpu)].index;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " and ") + words[i];
  return text;
}

std::string where(const Machine& machine, const RailPlace& place) {
  switch (place.path) {
    case PathClass::loc:
    case PathClass::nvl:
    case PathClass::pix:
      return "behind the same PCIe switch";
    case PathClass::pxb:
      return "behind the same PCIe switches, no CPU in between";
    case PathClass::phb:
      return "under the same host bridge, through the CPU";
    case PathClass::node:
      return "on the same NUMA node, through the CPU";
    case PathClass::sys:
      break;
  }
  const int gpu_node = machine.gpus[static_cast<size_t>(place.gpu)].numa;
  const int nic_node = nic_at(machine, place.nics.front()).numa;
  return gpu_node < 0 || nic_node < 0 ? "it is not known where" : "on another NUMA node, through the CPUs";
}

/// Who else uses one of the place's NICs: by name while they are few.
std::string sharers(const Machine& machine, const RailPlan& plan, const RailPlace& place) {
  constexpr size_t few = 4;
  std::set<int> others;
  for (const int nic : place.nics) {
    const std::vector<int>& locals = std::ranges::lower_bound(plan.rails, nic, {}, &Rail::nic)->locals;
    if (locals.size() > few + 1) return fmt::format("{} others", locals.size() - 1);
    others.insert(locals.begin(), locals.end());
  }
  others.erase(place.local);
  if (others.size() > few) return fmt::format("{} others", others.size());
  std::vector<std::string> names;
  for (const int local : others) {
    const int gpu = plan.places[static_cast<size_t>(local)].gpu;
    names.push_back(gpu < 0            ? fmt::format("local rank {}", local)
                    : gpu == place.gpu ? fmt::format("local rank {} on the same GPU", local)
                                       : fmt::format("GPU {}", gpu_number(machine, gpu)));
  }
  return joined(names);
}

/// NICs closer to the GPU than the ones taken, and what is wrong with them.
std::string passed_over(const Machine& machine, const RailPlace& place) {
  std::string text;
  for (size_t i = 0; i < machine.nics.size(); ++i) {
    const int nic = static_cast<int>(i);
    if (gpu_nic_path(machine, place.gpu, nic) >= place.path) continue;
    text += fmt::format("; {} is nearer but {}", nic_at(machine, nic).name,
                        nic_at(machine, nic).up ? "less than a tenth as fast" : "down");
  }
  return text;
}

std::string shared_with(const Machine& machine, const RailPlan& plan, const RailPlace& place) {
  const std::string text =
      fmt::format("shares {} with {}", nic_names(machine, place.nics), sharers(machine, plan, place));
  const auto nearest = nearest_nics(machine, place.gpu);
  if (nearest.size() == 1) return text + ": no other is as near";
  return fmt::format("{}: there are more GPUs than NICs near them, {}", text, nic_names(machine, nearest));
}

std::string choice(const Machine& machine, const RailPlan& plan, const RailPlace& place) {
  const std::string names = nic_names(machine, place.nics), spot = where(machine, place);
  switch (place.reason) {
    case RailReason::nearest:
      return fmt::format("{} is the nearest: {}", names, spot);
    case RailReason::turn:
      return fmt::format("{} in its turn: {} are equally near, {}", names,
                         nic_names(machine, nearest_nics(machine, place.gpu)), spot);
    case RailReason::striped:
      return fmt::format("stripes over {}, equally near: {}", names, spot);
    case RailReason::partly_shared:
      return fmt::format("stripes over {}, equally near ({}); what is left over is shared with {}", names,
                         spot, sharers(machine, plan, place));
    case RailReason::shared:
      return shared_with(machine, plan, place) + fmt::format(" ({})", spot);
    case RailReason::any:
    case RailReason::no_nic:
      break;
  }
  return "";
}

std::string without_gpu(const Machine& machine, const RailPlan& plan, const RailPlace& place) {
  const std::string others = sharers(machine, plan, place);
  std::string text = fmt::format("no GPU: {} of the fastest NICs", nic_names(machine, place.nics));
  if (!others.empty()) text += ", shared with " + others;
  return text;
}

/// "6.2 to 12.5": as many digits as tell the one from the other.
std::string from_to(double least, double most) {
  constexpr int most_digits = 6;
  for (int digits = 1;; ++digits) {
    const std::string from = fmt::format("{:.{}f}", least, digits), to = fmt::format("{:.{}f}", most, digits);
    if (from != to || digits == most_digits) return fmt::format("{} to {}", from, to);
  }
}

/// Positions that could not fill their NICs even alone.
std::vector<int> behind_slow_links(const Machine& machine, const RailPlan& plan) {
  std::vector<int> slow;
  for (const RailPlace& place : plan.places) {
    double nics = 0;
    for (const int nic : place.nics) nics += nic_gb_per_s(machine, nic);
    if (place.alone_gb_per_s < nics * 0.99) slow.push_back(place.local);
  }
  return slow;
}

}  // namespace

std::string nic_names(const Machine& machine, const std::vector<int>& nics) {
  std::vector<std::string> names;
  for (const int nic : nics) names.push_back(nic_at(machine, nic).name);
  return joined(names);
}

std::string explain_place(const Machine& machine, const RailPlan& plan, const RailPlace& place) {
  if (place.reason == RailReason::no_nic)
    return "no NIC is known: through host memory and the host's own network, all ranks of the node together";
  if (place.reason == RailReason::any) return without_gpu(machine, plan, place);
  std::string text = choice(machine, plan, place) + passed_over(machine, place);
  if (!nic_at(machine, place.nics.front()).up) text += "; it is down, and so are all others";
  if (place.better_relay >= 0) {
    const int relay = plan.places[static_cast<size_t>(place.better_relay)].gpu;
    text += fmt::format(
        "; GPU {}, one link away, has a NIC without a CPU in between: relaying there would be shorter",
        gpu_number(machine, relay));
  }
  return text;
}

std::string explain_unused(const Machine& machine, int nic) {
  if (!nic_at(machine, nic).up) return "down";
  double fastest = 0;
  for (size_t i = 0; i < machine.nics.size(); ++i)
    if (machine.nics[i].up) fastest = std::max(fastest, nic_gb_per_s(machine, static_cast<int>(i)));
  const double rate = nic_gb_per_s(machine, nic);
  if (rate > 0 && rate * 10 < fastest) return "less than a tenth as fast as the fastest";
  if (machine.gpus.empty()) return "slower than the fastest";
  return "nearest to no GPU in use, or slower than one as near";
}

std::vector<std::string> explain_plan(const Machine& machine, const RailPlan& plan) {
  std::vector<std::string> notes;
  const bool has_switch = std::ranges::any_of(
      machine.pci_devices, [](const PciDevice& device) { return device.kind == PciKind::pci_switch; });
  if (!machine.gpus.empty() && !machine.nics.empty() && !has_switch)
    notes.push_back(
        "no PCIe switch is visible (a virtual machine?): NICs are chosen by host bridge and NUMA node where "
        "these are known, "
        "else in order; where the provider has a topology file, give that");
  std::vector<int> by_pcie, unknown;
  double least = 0, most = 0;
  for (const Rail& rail : plan.rails) {
    if (rail.gb_per_s <= 0)
      unknown.push_back(rail.nic);
    else if (nic_at(machine, rail.nic).speed_mbit <= 0)
      by_pcie.push_back(rail.nic);
  }
  if (!by_pcie.empty())
    notes.push_back(fmt::format("the rate of {} is not known: that of its PCIe link is taken",
                                nic_names(machine, by_pcie)));
  if (!unknown.empty())
    notes.push_back(fmt::format("the rate of {} is not known", nic_names(machine, unknown)));
  for (const RailPlace& place : plan.places) {
    least = place.local == 0 ? place.gb_per_s : std::min(least, place.gb_per_s);
    most = std::max(most, place.gb_per_s);
  }
  if (least < most * 0.99)
    notes.push_back(fmt::format("local ranks are not equal: {} GB/s, and a collective waits for the slowest",
                                from_to(least, most)));
  const std::vector<int> slow = behind_slow_links(machine, plan);
  if (!slow.empty()) {
    const RailPlace& first = plan.places[static_cast<size_t>(slow.front())];
    notes.push_back(fmt::format(
        "{} PCIe links on the way carry less than the NICs: {:.1f} GB/s for {}",
        slow.size() == 1 ? "one rank's" : fmt::format("{} ranks'", slow.size()), first.alone_gb_per_s,
        first.gpu < 0 ? fmt::format("local rank {}", first.local)
                      : fmt::format("GPU {} (links of idle GPUs may be recorded slower than they are)",
                                    gpu_number(machine, first.gpu))));
  }
  if (plan.nodes == 1) notes.push_back("one node: nothing leaves it, no rail is used");
  return notes;
}

}  // namespace epccl::topology
