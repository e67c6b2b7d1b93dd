// Every network device and port of a machine, for people who look for what is wrong with one: as ibv_devinfo, with what it lies
// near, and with what could not be asked.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "topology/machine.hpp"
#include "topology/rdma_devices.hpp"

namespace epccl::tools {

/// `devices`: what libibverbs says, or why it says nothing. `mtus`: of interfaces that are no RDMA devices, by
/// position in machine.nics, 0 = unknown.
std::string format_nics(const topology::Machine& machine,
                        const Result<std::vector<topology::RdmaDevice>>& devices,
                        const std::vector<int>& mtus);

/// The same for programs: {"nics": [...], "not_asked": ["what could not be asked, and why"]}. Numbers that are not known are 0, a
/// NUMA node -1.
nlohmann::ordered_json nics_json(const topology::Machine& machine,
                                 const Result<std::vector<topology::RdmaDevice>>& devices,
                                 const std::vector<int>& mtus);

/// MTUs of this machine's interfaces, for format_nics().
std::vector<int> interface_mtus(const topology::Machine& machine,
                                const std::string& sysfs = "/sys/class/net");

}  // namespace epccl::tools
