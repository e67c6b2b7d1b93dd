#include "topology/discover_machine.hpp"

#include "base/log.hpp"
#include "topology/host_id.hpp"
#include "topology/hwloc_live.hpp"
#include "topology/hwloc_machine.hpp"
#include "topology/net_interfaces.hpp"
#include "topology/nvml.hpp"
#include "topology/verbs_ports.hpp"

namespace epccl::topology {

Result<Machine> discover_machine() {
  MachineBuilder builder;
  EPCCL_ASSIGN(const HwlocTree tree, read_hwloc_live());
  EPCCL_TRY(add_hwloc_objects(tree, builder).with_context("what hwloc found on this machine"));
  // A driver that answers nonsense must not keep a job from starting: the rest of the machine is still known.
  if (const Status status = add_nvml_gpus(builder); !status.ok()) builder.note("NVML: " + status.message());
  if (const Status status = add_verbs_ports(builder); !status.ok())
    builder.note("libibverbs: " + status.message());
  if (const Status status = add_net_interfaces(builder); !status.ok())
    builder.note("network interfaces: " + status.message());
  if (const std::string host = host_name(); !host.empty()) builder.set_name(host);
  EPCCL_ASSIGN(Machine machine, std::move(builder).build());
  machine.source = "live";
  log::info(log::topo, -1, "{}: {} NUMA nodes, {} GPUs, {} GPU switches, {} NICs", machine.name,
            machine.numa_nodes.size(), machine.gpus.size(), machine.switches.size(), machine.nics.size());
  for (const std::string& note : machine.notes) log::info(log::topo, -1, "{}", note);
  return machine;
}

}  // namespace epccl::topology
