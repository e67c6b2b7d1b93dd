// A rank's plan made ready for device_executor.hpp: which queue does which step, and how its messages are cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "plan/hand_outs.hpp"
#include "runtime/executor/compiled_plan.hpp"
#include "runtime/queues/queue_program.hpp"

namespace epccl::runtime {

struct DeviceProgram {
  CompiledPlan plan;
  std::vector<uint32_t> dependencies;  // as of the plan it was made of
  std::vector<uint16_t> queue_of;      // by step; plan::Queues::none: the host does it
  std::vector<uint32_t> sum_of;  // by step: the sum that does this copy as well; plan::Builder::none: none
  // Rows that one kernel hands to several ranks of the node; by step: which of them it belongs to, or RowFeed::no_hand_out.
  std::vector<plan::HandOut> hand_outs;
  std::vector<uint32_t> hand_out_of;
  QueueProgram queues;  // what feeding them takes; no steps and no operations
  // Messages travel in pieces. By step: the number of its first one, among those between the two ranks in that direction.
  std::vector<uint32_t> first_piece;
  uint64_t largest_piece = 0;
  std::array<bool, 3> in_messages{};  // by plan::Buffer: messages leave from there, or arrive there
  int peers = 0;                      // of other nodes that this rank sends to

  size_t bytes() const;  // what it takes in memory
  bool is_for_queue(uint32_t step) const { return queue_of[step] != plan::Queues::none; }
  /// Goes on with other tables: see plan::count_rows(). `piece_bytes` as it was made with.
  Status use_tables(std::shared_ptr<const plan::RowTables> tables, uint64_t piece_bytes);
};

/// `piece_bytes`: of a message, sent at once at most; the same on every rank.
Result<DeviceProgram> make_device_program(const plan::RankPlan& plan, const topology::Cluster& cluster,
                                          int width, uint64_t piece_bytes,
                                          plan::Makers makers = plan::Makers::engines);

/// Pieces of a message; one at least.
constexpr uint32_t pieces_of(uint64_t bytes, uint64_t piece_bytes) {
  return bytes == 0 ? 1 : static_cast<uint32_t>((bytes + piece_bytes - 1) / piece_bytes);
}

}  // namespace epccl::runtime
