#include "algorithms/alltoall/node_alltoallv.hpp"

#include <array>

namespace epccl::algorithms {
namespace {

using plan::Buffer;
using plan::Builder;

constexpr uint16_t ready_slot = 0, read_slot = 1;

constexpr uint64_t any_bytes = 1;  // steps get theirs later

void fit(plan::Step& step, uint64_t bytes) {
  step.bytes = bytes;
  step.rows = bytes > 0 ? 1 : 0;
}

FittedPlan take(Builder builder, FittedPlan made) {
  made.plan = std::move(builder).take();
  made.plan.input_bytes = made.plan.output_bytes = 0;  // places in buffers are a call's
  return made;
}

FittedPlan without_steps(int ranks) {
  const auto count = static_cast<size_t>(ranks);
  return {{}, std::vector<uint32_t>(count, Builder::none), std::vector<uint32_t>(count, Builder::none)};
}

}  // namespace

FittedPlan build_small_blocks(const topology::Cluster& cluster, int rank, uint64_t head_bytes,
                              uint64_t slot_bytes) {
  Builder builder(rank);
  const int ranks = cluster.ranks();
  FittedPlan made = without_steps(ranks);
  const auto peer = [&](int distance) { return (rank + distance) % ranks; };
  const auto slot = [&](int destination) {
    return head_bytes + static_cast<uint64_t>(destination) * slot_bytes;
  };
  std::vector<uint32_t> staged, ready;
  for (int distance = 1; distance < ranks; ++distance) {
    const int to = peer(distance);
    staged.push_back(builder.copy(0, builder.input(0), builder.scratch(slot(to)), slot_bytes));
    made.sent[static_cast<size_t>(to)] = staged.back();
    // Here, so that the next copy is a step of its own.
    ready.push_back(builder.wait(2, peer(ranks - distance), ready_slot, 1));
  }
  builder.post(0, ready_slot, 1, staged);
  const uint32_t own = builder.copy(0, builder.input(0), builder.output(0), slot_bytes);
  made.sent[static_cast<size_t>(rank)] = made.received[static_cast<size_t>(rank)] = own;
  for (int distance = 1; distance < ranks; ++distance) {
    const int from = peer(ranks - distance);
    const std::array after{ready[static_cast<size_t>(distance - 1)]};
    made.received[static_cast<size_t>(from)] =
        builder.copy(2, {from, Buffer::scratch, slot(rank)}, builder.output(0), slot_bytes, after);
  }
  return take(std::move(builder), std::move(made));
}

FittedPlan build_large_blocks(const topology::Cluster& cluster, int rank) {
  Builder builder(rank);
  const int ranks = cluster.ranks();
  FittedPlan made = without_steps(ranks);
  const auto peer = [&](int distance) { return (rank + distance) % ranks; };
  builder.enter(ready_slot);
  std::vector<uint32_t> read;
  for (int distance = 1; distance < ranks; ++distance) {
    const int from = peer(ranks - distance);
    const std::array after{builder.wait_for_entry(2, from, ready_slot)};
    read.push_back(builder.copy(2, {from, Buffer::input, 0}, builder.output(0), any_bytes, after));
    made.received[static_cast<size_t>(from)] = read.back();
  }
  builder.post(2, read_slot, 1, read);
  const uint32_t own = builder.copy(0, builder.input(0), builder.output(0), any_bytes);
  made.sent[static_cast<size_t>(rank)] = made.received[static_cast<size_t>(rank)] = own;
  for (int distance = 1; distance < ranks; ++distance) builder.wait(2, peer(distance), read_slot, 1);
  return take(std::move(builder), std::move(made));
}

void fit_sent(plan::Step& step, uint64_t bytes, uint64_t input_offset) {
  fit(step, bytes);
  step.source.offset = input_offset;
}

void fit_received(plan::Step& step, uint64_t bytes, uint64_t output_offset) {
  fit(step, bytes);
  step.destination.offset = output_offset;
}

}  // namespace epccl::algorithms
