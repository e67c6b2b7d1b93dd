// What a source tells every rank when a layout is made: what it needs to know to receive, to relay and to give back.
//
//   [header][tokens for each rank of the receiver's node][entries of each expert of that node]
//   and to the rank that relays for this source:  [tokens for the node] [entries, tokens] of each rank of the node
//   to the others:                                [entries, tokens] of their own
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "algorithms/ep/token_streams.hpp"
#include "base/status.hpp"
#include "ep/routing/expert_map.hpp"
#include "ep/routing/routing.hpp"
#include "topology/cluster.hpp"

namespace epccl::ep {

using algorithms::Strategy;
inline constexpr std::array strategies{Strategy::flat, Strategy::gather, Strategy::dedup};

/// The rank of `node` that relays what `source` sends there.
int relay_of(const topology::Cluster& cluster, int source, int node);
/// Sources of other nodes whose rows this rank hands on in its own.
uint64_t sources_of_relay(const topology::Cluster& cluster, int rank);

/// Of one source; every rank gets them from every source, so all can decide alike.
struct SourceHeader {
  enum Problem : uint32_t {
    none = 0,
    too_many_tokens = 1,
    bad_expert = 2,
    k_too_large = 3,
    not_static_k = 4
  };

  int64_t bad_expert_id = 0;  // no bad one is 0
  uint64_t chunk_bytes = 0;   // of a message, about: GPUs want longer ones
  uint32_t problem = none;
  uint32_t tokens = 0;
  uint32_t k = 0;
  uint32_t layout = 0;  // epcclEpLayout_t
  uint32_t alignment = 0;
  uint32_t capacity = 0;
  uint16_t pad = 0;
  uint16_t undefined_padding = 0;
  uint32_t group = 0;   // Group::number(): of another group nothing else can be read
  uint32_t handle = 0;  // Handle::number()
  uint32_t bad_token = 0,
           bad_k = 0;  // of a bad expert; where that is no problem, of one that counts as unused
  std::array<uint32_t, 3> block_tokens{};  // by strategy: tokens of a block
  std::array<uint32_t, 3> turn_blocks{};   // by strategy: as many blocks in a turn of a combine, at most
  std::array<uint32_t, 3> network_rows{};  // by strategy: rows it sends to other nodes
  std::array<uint32_t, 3> network_streams{};
  uint32_t node_rows = 0;  // of this message: tokens for the node, where the receiver relays
};

/// One source's message, decoded; refers to the words it was read from.
struct SourceLayout {
  SourceHeader header;
  std::span<const uint32_t> rank_tokens;     // by local position of the receiver's node
  std::span<const uint32_t> expert_entries;  // by node index
  std::span<const uint32_t> node_tokens;     // where the receiver relays
  std::vector<RankRows> rows;                // by local position where the receiver relays; else one, its own
  bool relayed = false;

  const RankRows& rows_of(size_t local) const { return relayed ? rows[local] : rows[0]; }
};

/// The messages of one source, one after the other.
struct SourceMessages {
  std::vector<uint32_t> words;
  std::vector<size_t> begin;  // of each rank's message, and the end
};
/// `routing` is not read where the header names a problem. `before`: messages whose memory can be used again.
SourceMessages make_messages(const topology::Cluster& cluster, int source, const SourceHeader& header,
                             const Routing& routing, SourceMessages before = {});

/// What a receiver goes by: its group's.
struct GroupFacts {
  uint32_t most_tokens = 0;  // of a source
  uint32_t number = 0;
};
/// Error: the message is damaged. Of a source of another group only the header is read.
Result<SourceLayout> read_message(const topology::Cluster& cluster, const ExpertMap& experts,
                                  const GroupFacts& group, int source, int receiver,
                                  std::span<const uint32_t> words);

}  // namespace epccl::ep
