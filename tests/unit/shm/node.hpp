// The ranks of a node, all in this process.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "transports/shm/message_ring.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::transports {

inline SegmentSpec spec_of(int ranks) {
  SegmentSpec spec;
  spec.local_size = ranks;
  spec.scratch_bytes = 4096;
  spec.ring_bytes = message_rings_bytes(ranks);
  return spec;
}

class Node {
 public:
  explicit Node(int ranks) {
    const SegmentSpec spec = spec_of(ranks);
    std::vector<NodeSegment> segments;
    for (int local = 0; local < ranks; ++local) {
      auto segment =
          local == 0 ? NodeSegment::create(spec) : NodeSegment::attach(spec, segments.front().handle());
      if (!segment.ok()) throw std::runtime_error(segment.status().message());
      segments.push_back(std::move(segment).value());
    }
    for (int local = 0; local < ranks; ++local) {
      auto memory = NodeMemory::open(std::move(segments[static_cast<size_t>(local)]), local);
      if (!memory.ok()) throw std::runtime_error(memory.status().message());
      ranks_.push_back(std::move(memory).value());
    }
  }
  NodeMemory& operator[](int local) { return *ranks_[static_cast<size_t>(local)]; }
  int ranks() const { return static_cast<int>(ranks_.size()); }

 private:
  std::vector<std::unique_ptr<NodeMemory>> ranks_;
};

}  // namespace epccl::transports
