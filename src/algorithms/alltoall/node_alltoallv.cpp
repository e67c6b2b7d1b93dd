#include "algorithms/alltoall/node_alltoallv.hpp"

#include <array>

namespace epccl::algorithms {
namespace {

using plan::Buffer;
using plan::Builder;

constexpr uint16_t ready_slot = 0, read_slot = 1;

void fit(plan::Step& step, uint64_t bytes) {
  step.bytes = bytes;
  step.rows = bytes > 0 ? 1 : 0;
}

uint64_t slot_of(int destination, uint64_t head_bytes, uint64_t slot_bytes) {
  return head_bytes + static_cast<uint64_t>(destination) * slot_bytes;
}

FittedPlan without_steps(int ranks) {
  const std::vector<uint32_t> none(static_cast<size_t>(ranks), Builder::none);
  return {{}, none, none, none, Builder::none};
}

}  // namespace

// The end of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t BlockSums::hash(int from, int to, uint64_t bytes) {
  const uint64_t pair = static_cast<uint64_t>(from) << 32 | static_cast<uint32_t>(to);
  uint64_t mixed = bytes + (pair + 1) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return mixed ^ mixed >> 31;
}

FittedPlan build_blocks(const topology::Cluster& cluster, int rank, uint64_t head_bytes,
                        uint64_t slot_bytes) {
  Builder builder(rank);
  const int ranks = cluster.ranks();
  FittedPlan made = without_steps(ranks);
  const auto peer = [&](int distance) { return (rank + distance) % ranks; };
  std::vector<uint32_t> staged, ready, read;
  for (int distance = 1; distance < ranks; ++distance) {
    const int to = peer(distance);
    // Neighbours of different lengths stay steps of their own; each gets its length for a call.
    const uint64_t bytes = slot_bytes + static_cast<uint64_t>(distance % 2);
    staged.push_back(
        builder.copy(0, builder.input(0), builder.scratch(slot_of(to, head_bytes, slot_bytes)), bytes));
    made.sent[static_cast<size_t>(to)] = staged.back();
  }
  // All others wait for this: nothing else of what may take long comes before.
  const std::array posted{builder.post(0, ready_slot, 1, staged)};
  for (int distance = 1; distance < ranks; ++distance)
    ready.push_back(builder.wait(2, peer(ranks - distance), ready_slot, 1, posted));
  const uint32_t own = builder.copy(0, builder.input(0), builder.output(0), slot_bytes, posted);
  made.sent[static_cast<size_t>(rank)] = made.received[static_cast<size_t>(rank)] = own;
  for (int distance = 1; distance < ranks; ++distance) {
    const int from = peer(ranks - distance);
    const std::array after{ready[static_cast<size_t>(distance - 1)]};
    read.push_back(builder.copy(2, {from, Buffer::scratch, slot_of(rank, head_bytes, slot_bytes)},
                                builder.output(0), slot_bytes, after));
    made.received[static_cast<size_t>(from)] = read.back();
  }
  made.has_read = builder.post(2, read_slot, 1, read);
  for (int distance = 1; distance < ranks; ++distance)
    made.let_go[static_cast<size_t>(peer(distance))] = builder.wait(2, peer(distance), read_slot, 1);
  made.plan = std::move(builder).take();
  made.plan.input_bytes = made.plan.output_bytes = 0;  // places in buffers are a call's
  made.plan.scratch_bytes = slot_of(ranks, head_bytes, slot_bytes);
  return made;
}

void fit_sent(plan::Step& step, uint64_t bytes, uint64_t input_offset) {
  fit(step, bytes);
  step.source.offset = input_offset;
}

void fit_received(plan::Step& step, uint64_t bytes, uint64_t output_offset) {
  fit(step, bytes);
  step.destination.offset = output_offset;
}

void fit_slot(plan::Step& received, int rank, uint64_t head_bytes, uint64_t slot_bytes) {
  received.source.buffer = Buffer::scratch;
  received.source.offset = slot_of(rank, head_bytes, slot_bytes);
}

void fit_source(plan::Step& received, uint64_t input_offset) {
  received.source.buffer = Buffer::input;
  received.source.offset = input_offset;
}

void fit_turn(plan::Step& step, bool takes_part) {
  step.rows = takes_part ? 1 : 0;
}

}  // namespace epccl::algorithms
