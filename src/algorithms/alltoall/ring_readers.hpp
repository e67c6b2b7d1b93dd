// Who read last what lies in a ring of scratch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace epccl::algorithms {

/// By bytes: what passes the ring by leaves its place as it was, so who had it before may be any number of turns back.
class RingReaders {
 public:
  /// What the steps that read [begin, end) last are, which are then forgotten: whoever waits for them writes it, and has a reader of its own.
  std::vector<uint32_t> take(uint64_t begin, uint64_t end) {
    std::vector<uint32_t> steps;
    std::vector<Reader> rest;
    std::erase_if(readers_, [&](const Reader& reader) {
      if (reader.end <= begin || end <= reader.begin) return false;
      steps.push_back(reader.step);
      if (reader.begin < begin) rest.push_back({reader.begin, begin, reader.step});
      if (end < reader.end) rest.push_back({end, reader.end, reader.step});
      return true;
    });
    readers_.insert(readers_.end(), rest.begin(), rest.end());
    std::ranges::sort(steps);
    steps.erase(std::ranges::unique(steps).begin(), steps.end());
    return steps;
  }
  void add(uint64_t begin, uint64_t end, uint32_t step) { readers_.push_back({begin, end, step}); }

 private:
  struct Reader {
    uint64_t begin, end;
    uint32_t step;
  };
  std::vector<Reader> readers_;
};

}  // namespace epccl::algorithms
