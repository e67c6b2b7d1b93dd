// The kernel's network interfaces in this network namespace.
#pragma once

#include <map>
#include <string>

#include "base/status.hpp"
#include "topology/machine_builder.hpp"

namespace epccl::topology {

/// Adds speed and state to NICs found before (joined by interface name), and interfaces that PCI does not
/// show: in a container or network namespace they are all there is. Left out: loopback, bridges, their
/// virtual members, and virtual interfaces that are down. Removes interfaces that hwloc saw but this
/// namespace has not.
Status add_net_interfaces(MachineBuilder& builder, const std::string& sysfs = "/sys/class/net");

/// The same for given interfaces (name -> number), for tests.
Status add_net_interfaces(MachineBuilder& builder, const std::string& sysfs,
                          const std::map<std::string, unsigned>& interfaces);

}  // namespace epccl::topology
