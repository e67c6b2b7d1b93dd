// Plan builders for the collectives beside alltoall: pure functions of (cluster, call, parameters).
//
//   flat       ranks of other nodes directly, one message a pair of ranks
//   two_level  inside the nodes, then along rails, then inside the nodes: what crosses the network crosses it once a node
//
// On one node both are the same. Small calls are *staged*: ranks copy what others want into their scratch, where these fetch it.
// Large ones read and write each other's buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "plan/plan.hpp"
#include "plan/verifier.hpp"
#include "topology/cluster.hpp"

namespace epccl::algorithms {

enum class Collective : uint8_t { allgather, reduce_scatter, allreduce, broadcast, reduce, gather, scatter };
const char* to_string(Collective collective);
bool has_root(Collective collective);
bool reduces(Collective collective);

enum class Form : uint8_t { flat, two_level };
const char* to_string(Form form);

/// Of a form, how it is made. A call has some of these; one that it does not have is `plain`.
enum class Variant : uint8_t {
  plain,
  alone,  // allreduce on one node, staged: each rank makes all of the sum by itself
  tree,  // between more than two nodes, two_level. broadcast, reduce: along a binomial tree; allreduce: by recursive doubling
  relay,     // broadcast, reduce, two_level: from node to node, not between the root's node and every other
  split,     // allreduce, two_level: each node finishes a part of each piece, and sends that to the others
  together,  // reduce_scatter, two_level, where all is staged at once: one rank of a node adds up what the node has for another, and
             // sends it in one message; not with `fetch` or room for that
};
inline constexpr Variant variants[] = {Variant::plain, Variant::alone, Variant::tree,
                                       Variant::relay, Variant::split, Variant::together};
const char* to_string(Variant variant);

/// What is called, the same on every rank: kind and sizes, no buffers.
struct CollectiveSpec {
  Collective kind = Collective::allreduce;
  uint64_t bytes =
      0;         // allgather, reduce_scatter, gather, scatter: of one rank's block; others: of everything
  int root = 0;  // where there is one
  uint64_t unit = 1;  // bytes of an element; nothing is cut inside one
};

/// Blocks of `call.bytes` that the buffers of a rank consist of; 0: the rank has no such buffer.
int input_blocks(const topology::Cluster& cluster, const CollectiveSpec& call, int rank);
int output_blocks(const topology::Cluster& cluster, const CollectiveSpec& call, int rank);

/// So many ranks of each node can share what is added up and sent: as many as the smallest node has.
int most_carriers(const topology::Cluster& cluster);

/// Constants of a build. Every rank must use the same.
struct CollectiveParameters {
  Form form = Form::two_level;
  Variant variant = Variant::plain;
  int carriers = 1;  // ranks of a node that share what it adds up and sends; 0, or too many: most_carriers()
  bool scaled =
      false;  // each rank's input has to be scaled by that rank, before others see it; two_level only, always staged
  bool fetch =
      false;  // what others of the node put in is copied into the own scratch before it is added up: then
  // copies are all that crosses between ranks, and copy engines can make them; not `Variant::alone`
  bool room_to_fetch =
      false;  // without `fetch`: scratch is divided as with it, so messages are as long as those of nodes that fetch
  uint64_t chunk_bytes =
      128 << 10;  // a network message, at most; with `fetch` a piece that is copied is as large, or with
                  // `Variant::split` as large as all nodes' shares
  uint64_t stage_bytes = 8 << 10;  // blocks up to this size are staged
  // And those of collectives with a root, where all of them take no more scratch than this: some ranks wait for nobody there,
  // and run ahead of the others by as many calls as there is scratch for.
  uint64_t ahead_bytes = 0;
  uint64_t scratch_bytes = 8 << 20;  // a rank's scratch, at most
  bool direct = true;                // ranks of a node can use each other's buffers; else all is staged
};

/// Whether `parameters` can run this at all; the error says what to raise.
Status check(const topology::Cluster& cluster, const CollectiveSpec& call,
             const CollectiveParameters& parameters);

/// Whether blocks travel through scratch, and the scratch that a rank then needs to do all in one round.
struct Staging {
  bool staged = true;
  uint64_t bytes = 0;
};
Staging staging_of(const topology::Cluster& cluster, const CollectiveSpec& call,
                   const CollectiveParameters& parameters);

/// Bytes of a result that are added up at once by those that reduce: as much as fits into scratch, and as makes messages of
/// `chunk_bytes`. Others: `chunk_bytes`.
uint64_t chunk_of(const topology::Cluster& cluster, const CollectiveSpec& call,
                  const CollectiveParameters& parameters);

/// Whether a reduce_scatter is made `Variant::together`, as its parameters wish.
bool is_together(const topology::Cluster& cluster, const CollectiveSpec& call,
                 const CollectiveParameters& parameters);

/// One rank's part.
plan::RankPlan build_collective(const topology::Cluster& cluster, const CollectiveSpec& call, int rank,
                                const CollectiveParameters& parameters);

/// Every rank's part.
plan::Plan build_collective_everywhere(const topology::Cluster& cluster, const CollectiveSpec& call,
                                       const CollectiveParameters& parameters);

/// What it must do, for the verifier.
struct CollectiveResult {
  std::vector<plan::Transfer> transfers;
  std::vector<plan::RowSum> sums;
  std::vector<plan::InPlace> in_place;  // by rank: how the buffers lie in a call in place, as NCCL defines it
};
CollectiveResult expected_result(const topology::Cluster& cluster, const CollectiveSpec& call);

}  // namespace epccl::algorithms
