// What a simulation finds: when each step ran, and how busy every link and memory was.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/link_bytes.hpp"

namespace epccl::plan {

struct StepTime {
  double start = 0;  // copy, send: the CPU takes it up; others: its dependencies are complete
  double end = 0;
};

/// One direction of a node's network link, or a node's memory.
struct LinkLoad {
  uint64_t bytes = 0;  // exact
  double busy = 0;     // seconds with at least one transfer in progress
};

struct Timeline {
  double total = 0;                          // seconds until the last step is complete
  std::vector<std::vector<StepTime>> ranks;  // [rank][step]
  int links_per_node = 1;                    // network links
  std::vector<LinkLoad> egress, ingress;     // per network link: [node * links_per_node + link]
  std::vector<LinkLoad> memory;              // per node: copies, moved rows, rows that sums read
  LinkBytes links;
};

}  // namespace epccl::plan
