#include "runtime/queues/device_program.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/executor/counter_values.hpp"
#include "runtime/executor/kept_bytes.hpp"
#include "runtime/executor/message_key.hpp"
#include "runtime/queues/row_feed.hpp"

namespace epccl::runtime {
namespace {

using plan::Kind;

// Both ends know a message's tag and length, and nothing of the order in which the other one starts them.
Status number_pieces(DeviceProgram& program, uint64_t piece_bytes) {
  program.largest_piece = 0;
  program.peers = 0;
  std::map<std::pair<int, bool>, std::vector<uint32_t>> between;  // by peer, and whether it is sent: steps
  const auto& steps = program.plan.steps;
  for (uint32_t index = 0; index < steps.size(); ++index) {
    const plan::Step& step = steps[index].step;
    if (step.kind != Kind::send && step.kind != Kind::recv) continue;
    const plan::Location& at = step.kind == Kind::send ? step.source : step.destination;
    program.in_messages[static_cast<size_t>(at.buffer)] = true;
    between[{step.peer, step.kind == Kind::send}].push_back(index);
    program.largest_piece = std::max(program.largest_piece, std::min(piece_bytes, step.total_bytes()));
  }
  program.first_piece.assign(steps.size(), 0);
  for (auto& [peer, messages] : between) {
    if (peer.second) ++program.peers;
    std::ranges::sort(messages, {}, [&](uint32_t index) { return steps[index].step.tag; });
    uint64_t next = 0;
    for (const uint32_t index : messages) {
      program.first_piece[index] = static_cast<uint32_t>(next);
      next += pieces_of(steps[index].step.total_bytes(), piece_bytes);
    }
    if (next >> message_tag_bits != 0)
      return error(Code::invalid_usage,
                   "{} messages of at most {} bytes between two ranks: raise EPCCL_STAGE_SIZE", next,
                   piece_bytes);
  }
  return {};
}

}  // namespace

size_t DeviceProgram::bytes() const {
  return plan.bytes() + queues.bytes() +
         kept_bytes(dependencies, queue_of, sum_of, hand_outs, hand_out_of, first_piece);
}

Status DeviceProgram::use_tables(std::shared_ptr<const plan::RowTables> tables, uint64_t piece_bytes) {
  if (plan.tables == tables) return {};
  plan.use_tables(std::move(tables));
  return number_pieces(*this, piece_bytes);
}

Result<DeviceProgram> make_device_program(const plan::RankPlan& given, const topology::Cluster& cluster,
                                          int width, uint64_t piece_bytes, plan::Makers makers) {
  EPCCL_TRY(check_values(given));
  plan::HandedOut handed = plan::with_hand_outs(given);
  // That leaves steps on rows where they are.
  EPCCL_ASSIGN(plan::QueuedPlan queued,
               plan::queued_plan(handed.plan, cluster, width, plan::Signals::by_host, makers));
  const plan::RankPlan& plan = queued.plan;
  DeviceProgram program;
  program.plan = compile(plan, cluster);
  program.dependencies = plan.dependencies;
  program.queue_of = std::move(queued.queues.of_step);
  program.sum_of = std::move(queued.queues.sum_of);
  program.hand_outs = std::move(handed.hand_outs);
  program.hand_out_of.assign(plan.steps.size(), RowFeed::no_hand_out);
  for (uint32_t number = 0; number < program.hand_outs.size(); ++number)
    std::fill_n(program.hand_out_of.begin() + program.hand_outs[number].first,
                program.hand_outs[number].count, number);
  program.queues.queues = std::move(queued.queues.lane);
  program.queues.row_sources = plan.row_sources;
  program.queues.uses = find_uses(plan, cluster);
  EPCCL_TRY(number_pieces(program, piece_bytes));
  return program;
}

}  // namespace epccl::runtime
