// Alltoalls of GPU memory in which every element says where it comes from, where it goes, and in which round.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "../api/ranks.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

inline int32_t numbered(int source, int destination, size_t index, int round = 0) {
  return source * 100'000'000 + destination * 10'000'000 + round * 1'000'000 + static_cast<int32_t>(index);
}

/// With `count` elements a pair; each follows what its stream had before, and is followed by what it gets then.
inline void expect_numbered_alltoalls(const RankContext& context, epcclComm_t comm, const GpuRank& gpu,
                                      size_t count, int rounds) {
  const auto ranks = static_cast<size_t>(context.ranks);
  GpuArray<int32_t> input(gpu, count * ranks), output(gpu, count * ranks);
  for (int round = 0; round < rounds; ++round) {
    std::vector<int32_t> values;
    for (int peer = 0; peer < context.ranks; ++peer)
      for (size_t i = 0; i < count; ++i) values.push_back(numbered(context.rank, peer, i, round));
    input.put(values);
    ASSERT_EQ(epcclAlltoall(input.data(), output.data(), count, epcclInt32, comm, gpu.as_epccl()),
              epcclSuccess)
        << epcclGetLastError(nullptr);
    const std::vector<int32_t> got = output.get();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], numbered(static_cast<int>(i / count), context.rank, i % count, round)) << i;
  }
}

}  // namespace epccl::tests
