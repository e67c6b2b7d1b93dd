// The machine in an NCCL topology file (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE), or in RCCL's variant of it.
//
//   <system> <cpu numaid affinity>                    a NUMA node
//              <pci busid class link_speed ...>       a switch, as one element, or a device
//                <gpu dev sm gcn> <nvlink target/>    RCCL: <xgmi target/>
//                <nic> <net name speed port/>
//
// Files written by hand often lack <gpu> and <net>: devices are then told by their PCI class.
#pragma once

#include "base/status.hpp"
#include "topology/machine.hpp"

#include <pugixml.hpp>

namespace epccl::topology {

/// `system` is the root element. The document has passed check_xml_limits().
Result<Machine> machine_from_nccl_xml(const pugi::xml_node& system);

}  // namespace epccl::topology
