// What collectives of ranks that share a GPU have to read and write at least, and which part of that rate they are to reach.
#pragma once

#include <cstdint>

namespace epccl::device::test {

enum class Collective { alltoall, allgather, reduce_scatter, allreduce };
inline const char* text_of(Collective which) {
  constexpr const char* names[] = {"alltoall", "allgather", "reduce_scatter", "allreduce"};
  return names[static_cast<int>(which)];
}
inline bool adds(Collective which) {
  return which == Collective::reduce_scatter || which == Collective::allreduce;
}

/// `bytes`: of the larger buffer of a rank; an allgather's input and a reduce-scatter's output are a block of it.
struct Amount {
  Collective which;
  int ranks;
  uint64_t bytes;

  /// Bytes that a copy of the least time would copy (it reads each and writes it): the mean of what has to be read and what has to be
  /// written, of all ranks.
  double floor_bytes() const {
    const double each = static_cast<double>(bytes), all = each * ranks;
    const bool has_blocks = which == Collective::allgather || which == Collective::reduce_scatter;
    return has_blocks ? (all + each) / 2 : all;
  }
  /// Of the floor's rate. An allgather by copies reads its input once for each rank, so where no cache helps it cannot come nearer than
  /// its floor's part of the bytes that are copied.
  double goal(bool by_processes) const {
    if (adds(which)) return 0.80;
    return (by_processes ? 0.85 : 0.90) * floor_bytes() / (static_cast<double>(bytes) * ranks);
  }
};

}  // namespace epccl::device::test
