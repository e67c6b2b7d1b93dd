// Puts a Machine together from what a reader or a probe finds, in any order, and checks that it makes sense.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.hpp"
#include "topology/machine.hpp"
#include "topology/pci_ids.hpp"

namespace epccl::topology {

/// More than any machine has; keeps what is done per pair of devices quick.
struct MachineLimits {
  static constexpr size_t numa_nodes = 4096;
  static constexpr size_t pci_devices = 65536;
  static constexpr size_t gpus = 256;
  static constexpr size_t nics = 1024;
  static constexpr size_t switches = 256;
  static constexpr size_t links = 65536;
  static constexpr int links_to_a_neighbour = 1024;
};

class MachineBuilder {
 public:
  /// References given to the add functions (`pci`, `numa`, `parent`) are positions returned by earlier calls.
  Result<int> add_numa_node(NumaNode node);
  /// Error when the bus id is taken (host bridges excepted: theirs is only the first of their buses).
  Result<int> add_pci_device(const PciDevice& device);
  /// `index` as driver or file number it. Where any GPU has none, all are numbered by bus id. Error when the
  /// bus id is taken by another GPU. `vendor`, `model` and `arch` are completed from the PCI device.
  Status add_gpu(Gpu gpu, std::optional<int> index);
  /// `order` as the file numbers it; those without come last, by bus id and port. `name`, `kind` and `numa`
  /// are completed from what is known.
  Status add_nic(Nic nic, std::optional<int> order = {});
  /// Adding a known one again does nothing.
  Status add_switch(const std::string& id);
  /// A GPU's links to what has the id `target`: a GPU's or a switch's bus id, or any other name of a switch.
  /// Several calls for the same pair add up. `gb_per_s` of 0 is completed from the architecture. A target
  /// that is not there leaves a note, as a process may see only some GPUs of a machine.
  Status add_link(const BusId& gpu, LinkKind kind, LinkEnd end, const std::string& target, int count,
                  double gb_per_s = 0);

  void set_name(std::string name) { machine_.name = std::move(name); }
  void note(std::string text) { machine_.notes.push_back(std::move(text)); }

  /// Position of the PCI device, -1 when there is none.
  int find_pci_device(const BusId& id) const;
  /// For probes that add to what an earlier probe found.
  Gpu* find_gpu(const BusId& id);
  std::vector<Nic>& nics() { return machine_.nics; }
  void remove_nics(const std::function<bool(const Nic&)>& unwanted);
  const Machine& so_far() const { return machine_; }

  Result<Machine> build() &&;

 private:
  struct PendingLink {
    BusId gpu;
    LinkKind kind;
    LinkEnd end;
    std::string target;
    int count;
    double gb_per_s;
  };

  Status number_gpus();
  void order_nics();
  Status resolve_links();
  Result<int> resolve_link_target(const PendingLink& pending);
  void note_guess(LinkKind kind, const std::string& arch, const GpuLinkRate& rate);
  void merge_links();

  Machine machine_;
  std::unordered_map<BusId, int> pci_by_id_;
  std::vector<std::optional<int>> gpu_indices_, nic_orders_;
  std::unordered_map<BusId, int> gpu_by_id_;
  std::vector<PendingLink> pending_links_;
};

}  // namespace epccl::topology
