// Which NIC every rank of a node sends through, and why: for a cluster of like machines.
//
// Pure data, the same on every rank. Local position l of every node uses the same NICs, so that traffic along a rail
// (Cluster::rail) meets its like at the other end: in a network with one switch a NIC position it never leaves that switch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "topology/machine.hpp"
#include "topology/paths.hpp"

namespace epccl::topology {

/// How a local position came to its NICs.
enum class RailReason : uint8_t {
  nearest,        // one NIC is nearest, and nobody else's
  turn,           // several are equally near, and others have the rest
  striped,        // several are equally near, and its own: large messages go over all of them
  partly_shared,  // its own, and one or more that it shares with its neighbours
  shared,         // fewer NICs than users are as near
  any,            // a rank without a GPU: one or more of the fastest
  no_nic,         // the machine shows none: through host memory and whatever network the host has
};
const char* to_string(RailReason reason);

/// What a local position uses on every node.
struct RailPlace {
  int local = 0;
  int gpu = -1;                     // into gpus; -1 = none
  std::vector<int> nics;            // into nics, in the order of stripes; empty = none
  PathClass path = PathClass::sys;  // from the GPU to the NICs; `sys` without a GPU
  bool through_cpu = false;         // the path crosses a CPU's host bridge, or is not known
  double alone_gb_per_s = 0;        // when no other position sends; 0 = unknown
  double gb_per_s = 0;              // when all positions send at once; 0 = unknown
  int better_relay = -1;  // a local position whose GPU has a link to this one's, and a NIC without a CPU
                          // in between, while this one has not: advice, see `why`
  RailReason reason = RailReason::no_nic;
  std::string why;  // one sentence for people
};

/// One NIC, on every node, and who meets there.
struct Rail {
  int nic = -1;
  std::vector<int> locals;  // local positions that use it, ascending
  double gb_per_s = 0;      // of the NIC; 0 = unknown
};

struct UnusedNic {
  int nic = -1;
  std::string why;
};

struct RailPlan {
  int nodes = 0;
  std::vector<RailPlace> places;  // by local position
  std::vector<Rail> rails;        // NICs in use, by position in Machine::nics
  std::vector<UnusedNic> unused;
  double node_gb_per_s = 0;        // what a node can send, and receive, when all positions do; 0 = unknown
  std::vector<std::string> notes;  // what is not known or not even, for people
};

/// The plan for `nodes` machines like this with `ranks_per_node` ranks each: local position l has GPU l, more ranks than
/// GPUs share them in turn; each GPU has the nearest NICs, dealt out by share_nics(). Rates are max-min fair shares of
/// NICs and of the PCI links on the way, in one direction. Error: a number below 1.
Result<RailPlan> plan_rails(const Machine& machine, int nodes, int ranks_per_node);

/// Where a rank of one communicator sends: `local` is its position among `ranks_per_node`. A rank whose GPU is known and one of this
/// machine's has the place that GPU has when all GPUs are used: others may be in use by other communicators, and each of these
/// counts its ranks from 0. Any other rank has that of its position.
Result<RailPlace> place_of_rank(const Machine& machine, int nodes, int ranks_per_node, int local,
                                const std::optional<BusId>& gpu);

/// NICs that share users, directly or through others, taken together: the network links of a node. `gb_per_s` is what
/// all of them carry when all of their users send (0 = unknown). Positions without NICs share one link without any.
struct RailGroup {
  std::vector<int> nics, locals;
  double gb_per_s = 0;
};
std::vector<RailGroup> rail_groups(const RailPlan& plan);

}  // namespace epccl::topology
