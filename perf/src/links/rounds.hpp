// Which ranks measure the link between them at one time: each rank with one other. What ranks share, a NIC say, they share then, too.
//
//   ranks of one rail (or node):  0 1 2 3        rounds: {0-3, 1-2}  {0-2, 3-1}  {0-1, 2-3}
//   all rails (all nodes) have their rounds side by side, as they have their traffic
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace epccl::perf::links {

enum class Pairs {
  rails,  // ranks of different nodes at one local position: the messages of two-stage collectives
  nodes,  // ranks of one node
  rails_and_nodes,
  all,  // ranks of different nodes, whatever their positions: the messages of flat ones
};
const char* to_string(Pairs pairs);
std::optional<Pairs> parse_pairs(std::string_view text);

/// Pairs of ranks, each rank in one at most; the first one sends first.
using Round = std::vector<std::pair<int, int>>;

/// Of what is compared with each other.
struct Group {
  Pairs kind;  // rails, nodes or all
  std::vector<Round> rounds;
};

/// For node_of[r], the node of rank r. Groups without pairs are left out.
std::vector<Group> groups_of(Pairs pairs, const std::vector<int>& node_of);

}  // namespace epccl::perf::links
