// What the topology tests share.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topology/machine_builder.hpp"
#include "topology/paths.hpp"
#include "topology/read_machine.hpp"

namespace epccl::topology {

inline std::string data_file(const std::string& name) {
  return std::string(EPCCL_TOPOLOGY_DATA) + "/" + name;
}

/// A machine of the data directory; fails the test when it does not load.
inline Machine load(const std::string& name) {
  auto machine = read_machine(data_file(name));
  EXPECT_TRUE(machine.ok()) << machine.status().message();
  return machine.ok() ? std::move(machine).value() : Machine{};
}

inline std::vector<std::string> gpu_ids(const Machine& machine) {
  std::vector<std::string> ids;
  for (const Gpu& gpu : machine.gpus) ids.push_back(gpu.bus_id.to_string());
  return ids;
}

inline std::vector<std::string> nic_names(const Machine& machine) {
  std::vector<std::string> names;
  for (const Nic& nic : machine.nics) names.push_back(nic.name);
  return names;
}

/// Kernel's number of the NUMA node of each GPU.
inline std::vector<int> gpu_numa_nodes(const Machine& machine) {
  std::vector<int> nodes;
  for (const Gpu& gpu : machine.gpus)
    nodes.push_back(gpu.numa < 0 ? -1 : machine.numa_nodes[static_cast<size_t>(gpu.numa)].os_index);
  return nodes;
}

/// Name of the NIC assigned to each GPU.
inline std::vector<std::string> assigned_nics(const Machine& machine) {
  std::vector<std::string> names;
  for (const int nic : assign_nics(machine))
    names.push_back(nic < 0 ? "" : machine.nics[static_cast<size_t>(nic)].name);
  return names;
}

/// Path class of each GPU to the NIC assigned to it.
inline std::vector<std::string> paths_to_assigned_nics(const Machine& machine) {
  std::vector<std::string> paths;
  const auto nics = assign_nics(machine);
  for (size_t gpu = 0; gpu < nics.size(); ++gpu)
    paths.push_back(nics[gpu] < 0 ? "" : to_string(gpu_nic_path(machine, static_cast<int>(gpu), nics[gpu])));
  return paths;
}

}  // namespace epccl::topology
