// The machine in a file that `lstopo --of xml` or hwloc_topology_export_xml() wrote, of versions 1 and 2.
//
//   <topology version> <object type="Machine">             version 1 has no version
//                        <object type="NUMANode" os_index cpuset nodeset local_memory>
//                        <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[2b-3b]">   host bridge
//                          <object type="Bridge" bridge_type="1-1" pci_busid ...>
//                            <object type="PCIDev" gp_index pci_busid pci_type pci_link_speed>
//                              <object type="OSDev" name osdev_type> <info name value>
//                      <distances2hetero name="NVLinkBandwidth" nbobjs> <indexes> <u64values>
//
// Read here and not by the hwloc library, which trusts its input: a few damaged bytes can crash the process.
#pragma once

#include "base/status.hpp"
#include "topology/hwloc_object.hpp"

#include <pugixml.hpp>

namespace epccl::topology {

/// `topology` is the root element. The document has passed check_xml_limits().
Result<HwlocTree> read_hwloc_xml(const pugi::xml_node& topology);

}  // namespace epccl::topology
