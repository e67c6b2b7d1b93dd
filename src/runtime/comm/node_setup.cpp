#include "runtime/comm/node_setup.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/alltoall/counts.hpp"
#include "base/log.hpp"
#include "runtime/bootstrap/allgather.hpp"
#include "transports/shm/hand_over.hpp"
#include "transports/shm/message_ring.hpp"
#include "transports/shm/parcel_board.hpp"

namespace epccl::runtime {
namespace {

using transports::NodeMemory;
using transports::NodeSegment;

struct SegmentOffer {
  transports::SegmentHandle handle;
  std::array<char, 160> failure{};
};

/// What a rank finds that it may do with its node's others.
enum Access : uint32_t { uses_peers = 1, opens_peers = 2 };

/// The first rank that may not; -1: all may.
int first_without(const std::vector<uint32_t>& all, uint32_t access) {
  const auto found = std::ranges::find_if(all, [access](uint32_t of) { return (of & access) == 0; });
  return found == all.end() ? -1 : static_cast<int>(found - all.begin());
}

const std::vector<int>& ranks_of_this_node(const CommParts& parts) {
  return parts.cluster.members(parts.cluster.node_of(parts.rank));
}

bool is_of_this_node(const CommParts& parts, const std::vector<uint32_t>& all, uint32_t access) {
  return std::ranges::any_of(ranks_of_this_node(parts),
                             [&](int rank) { return (all[static_cast<size_t>(rank)] & access) == 0; });
}

transports::SegmentSpec segment_spec(const CommParts& parts) {
  transports::SegmentSpec spec;
  spec.local_size = parts.cluster.local_size(parts.cluster.node_of(parts.rank));
  spec.scratch_bytes =
      std::max(parts.config.parameters.scratch_bytes, algorithms::counts_scratch_bytes(parts.cluster));
  spec.ring_bytes = transports::message_rings_bytes(spec.local_size);
  if (parts.cluster.nodes() > 1 && spec.local_size > 1)
    spec.parcel_bytes = transports::ParcelBoard::bytes(spec.local_size, parts.cluster.nodes());
  return spec;
}

Status open_memory(CommParts& parts, NodeSegment segment) {
  EPCCL_ASSIGN(parts.node, NodeMemory::open(std::move(segment), parts.cluster.local_of(parts.rank)));
  return {};
}

/// While ranks meet.
transports::Patience patience_of(const CommParts& parts) {
  const auto check = [interrupt = parts.interrupt, rank = parts.rank]() -> Status {
    if (interrupt == nullptr || !interrupt->fired()) return {};
    return error(Code::remote_error, "rank {}: the communicator was aborted", rank);
  };
  return {parts.config.wait.timeout_seconds, check};
}

/// `why` it is asked for.
Status open_memory_handed_over(CommParts& parts, const transports::SegmentSpec& spec,
                               const transports::SegmentHandle& handle, const Status& why) {
  const auto handed = transports::ask_for_window(handle, 0, handle.memory, patience_of(parts));
  if (!handed.ok())
    return error(handed.status().code(), handed.status().reason(),
                 "attaching to the node's shared segment: {}; nor is it handed over: {}", why.message(),
                 handed.status().message());
  EPCCL_ASSIGN(NodeSegment segment, NodeSegment::attach(spec, handle, *handed));
  EPCCL_TRY(open_memory(parts, std::move(segment)));
  parts.node->note_handed_segment();
  return {};
}

// Who may not look into the process that made the segment is handed it; that is told when all have tried.
Status attach_all(CommParts& parts, const transports::SegmentSpec& spec,
                  const transports::SegmentHandle& handle) {
  Status shut_out;
  if (parts.node == nullptr) {
    EPCCL_TRY(NodeSegment::check(spec, handle));
    auto opened = device::open_window(handle.memory);
    if (opened.ok()) {
      EPCCL_ASSIGN(NodeSegment segment, NodeSegment::attach(spec, handle, *opened));
      EPCCL_TRY(open_memory(parts, std::move(segment)));
    }
    shut_out = std::move(opened).take_status();
  }
  EPCCL_ASSIGN(const std::vector<uint32_t> all,
               allgather(*parts.bootstrap, shut_out.ok() ? uint32_t{opens_peers} : 0));
  if (first_without(all, opens_peers) < 0) return {};
  if (parts.cluster.local_of(parts.rank) == 0 && is_of_this_node(parts, all, opens_peers))
    EPCCL_TRY(parts.node->hand_over());
  EPCCL_TRY(parts.bootstrap->barrier());
  if (!shut_out.ok()) EPCCL_TRY(open_memory_handed_over(parts, spec, handle, shut_out));
  return parts.bootstrap->barrier();
}

}  // namespace

// The first rank of each node makes its segment; the others attach. A failure is everybody's failure.
Status open_node_memory(CommParts& parts) {
  const int node = parts.cluster.node_of(parts.rank);
  const transports::SegmentSpec spec = segment_spec(parts);
  SegmentOffer offer;
  Status status;
  if (parts.cluster.local_of(parts.rank) == 0) {
    auto created = NodeSegment::create(spec);
    if (created.ok()) {
      offer.handle = created->handle();
      status = open_memory(parts, std::move(created).value());
    } else {
      status = std::move(created).take_status();
    }
    const size_t length = std::min(status.message().size(), offer.failure.size() - 1);
    std::memcpy(offer.failure.data(), status.message().data(), length);
  }
  EPCCL_ASSIGN(const std::vector<SegmentOffer> offers, allgather(*parts.bootstrap, offer));
  if (!status.ok()) return std::move(status).with_context("making the node's shared memory");
  for (int rank = 0; rank < parts.cluster.ranks(); ++rank)
    if (const char* text = offers[static_cast<size_t>(rank)].failure.data(); *text != 0)
      return error(Code::remote_error, "rank {} could not make its node's shared memory: {}", rank, text);
  EPCCL_TRY(attach_all(parts, spec, offers[static_cast<size_t>(parts.cluster.rank_at(node, 0))].handle));
  parts.node->segment().close_descriptor();
  return {};
}

Status agree_on_access(CommParts& parts) {
  const uint32_t mine =
      (parts.config.allow_direct && parts.node->can_read_peers() ? uint32_t{uses_peers} : 0) |
      (parts.node->can_open_peers() ? uint32_t{opens_peers} : 0);
  EPCCL_ASSIGN(const std::vector<uint32_t> all, allgather(*parts.bootstrap, mine));
  const int refused = first_without(all, uses_peers), shut_out = first_without(all, opens_peers);
  parts.direct = refused < 0;
  if (!parts.direct)
    log::info(log::shm, parts.rank,
              "rank {} may not use its peers' memory ({}): copies inside nodes are staged", refused,
              parts.config.allow_direct ? "process_vm_readv or process_vm_writev is refused" : "EPCCL_CMA=0");
  if (const int peer = parts.node->beyond_bells(); peer >= 0)
    log::info(
        log::shm, parts.rank,
        "rank {}, of this node as EPCCL_HOSTID says, is in another network namespace: who of them sleeps for "
        "messages and the network is not woken, and looks 20 times a second",
        ranks_of_this_node(parts)[static_cast<size_t>(peer)]);
  if (shut_out < 0) return {};
  log::info(
      log::shm, parts.rank,
      "rank {} may not open the memory of its node's other ranks (as where user namespaces or capabilities "
      "differ, a process is not dumpable, or /proc is missing): they hand it over through sockets",
      shut_out);
  if (is_of_this_node(parts, all, opens_peers)) EPCCL_TRY(parts.node->hand_over());
  return parts.bootstrap->barrier();
}

}  // namespace epccl::runtime
