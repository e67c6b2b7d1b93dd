// Collectives drawn at random, made on GPU memory and, with the same data, on host memory: all bytes must be the same afterwards, those
// that lie around the buffers too.
#pragma once

#include <cuda.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../api/ranks.hpp"
#include "../ep_cuda/gpu_memory.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

enum class Drawn {
  alltoall,
  alltoallv,
  allgather,
  broadcast,
  gather,
  scatter,
  allreduce,
  reduce_scatter,
  reduce
};

inline uint64_t drawn_seed() {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("EPCCL_TEST_SEED")) seed = std::strtoull(given, nullptr, 10);
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

/// One call; drawn alike on every rank.
class DrawnCall {
 public:
  DrawnCall(Drawn kind, std::mt19937_64& random, int ranks, size_t most) : kind_(kind), ranks_(ranks) {
    const auto up_to = [&](size_t limit) { return static_cast<size_t>(random() % (limit + 1)); };
    constexpr std::array types{epcclFloat32, epcclBfloat16, epcclInt32};
    constexpr std::array operations{epcclSum, epcclMax, epcclAvg};
    count_ = up_to(9) == 0 ? 0 : up_to(up_to(3) == 0 ? most : 40);
    type_ = types[up_to(types.size() - 1)];
    operation_ = operations[up_to(operations.size() - 1)];
    root_ = static_cast<int>(up_to(static_cast<size_t>(ranks) - 1));
    in_place_ = kind != Drawn::alltoall && kind != Drawn::alltoallv && up_to(1) == 0;
    shift_ = up_to(3);
    for (int pair = 0; pair < ranks * ranks; ++pair) counts_.push_back(up_to(3) == 0 ? 0 : up_to(count_));
    seed_ = random();
  }

  std::string text() const {
    return fmt::format("kind {} count {} datatype {} operation {} root {}{} shift {}",
                       static_cast<int>(kind_), count_, static_cast<int>(type_), static_cast<int>(operation_),
                       root_, in_place_ ? " in place" : "", shift_);
  }

  /// The memory of both buffers, and what lies around them; other data with every mark.
  std::vector<std::byte> memory(int rank, uint64_t mark = 0) const {
    std::vector<std::byte> bytes((outputs_at(rank) + outputs(rank) + 8) * element());
    std::mt19937_64 random(seed_ + static_cast<uint64_t>(rank) + 1000 * mark);
    for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
      const float value = static_cast<float>(random() % 2000) / 1000.0F - 1.0F;
      std::memcpy(bytes.data() + at, &value, 4);  // two bfloat16, any int32
      if (type_ == epcclBfloat16)
        std::memcpy(bytes.data() + at, reinterpret_cast<const char*>(&value) + 2, 2);
    }
    return bytes;
  }

  epcclResult_t call(int rank, std::byte* memory, epcclComm_t comm, epcclStream_t stream) const {
    const bool is_in_place = in_place_ && inputs(rank) > 0 && outputs(rank) > 0;
    std::byte* out = memory + outputs_at(rank) * element();
    std::byte* in = memory + shift_ * element();
    if (is_in_place) {
      const size_t own = static_cast<size_t>(rank) * count_ * element();
      in = out;
      if (inputs(rank) < outputs(rank)) in = out + own;
      if (inputs(rank) > outputs(rank)) {
        in = memory + shift_ * element();
        out = in + own;
      }
    }
    switch (kind_) {
      case Drawn::alltoall:
        return epcclAlltoall(in, out, count_, type_, comm, stream);
      case Drawn::alltoallv:
        return call_alltoallv(rank, in, out, comm, stream);
      case Drawn::allgather:
        return epcclAllGather(in, out, count_, type_, comm, stream);
      case Drawn::broadcast:
        return epcclBroadcast(in, out, count_, type_, root_, comm, stream);
      case Drawn::gather:
        return epcclGather(in, out, count_, type_, root_, comm, stream);
      case Drawn::scatter:
        return epcclScatter(in, out, count_, type_, root_, comm, stream);
      case Drawn::allreduce:
        return epcclAllReduce(in, out, count_, type_, operation_, comm, stream);
      case Drawn::reduce_scatter:
        return epcclReduceScatter(in, out, count_, type_, operation_, comm, stream);
      case Drawn::reduce:
        return epcclReduce(in, out, count_, type_, operation_, root_, comm, stream);
    }
    return epcclInternalError;
  }

 private:
  size_t element() const { return type_ == epcclBfloat16 ? 2 : 4; }
  size_t all() const { return count_ * static_cast<size_t>(ranks_); }
  size_t inputs(int rank) const {
    const bool from_root = kind_ == Drawn::broadcast || kind_ == Drawn::scatter;
    if (from_root && rank != root_) return 0;
    const bool has_blocks = kind_ == Drawn::alltoall || kind_ == Drawn::alltoallv ||
                            kind_ == Drawn::reduce_scatter || kind_ == Drawn::scatter;
    return has_blocks ? all() : count_;
  }
  size_t outputs(int rank) const {
    const bool to_root = kind_ == Drawn::reduce || kind_ == Drawn::gather;
    if (to_root && rank != root_) return 0;
    const bool has_blocks = kind_ == Drawn::alltoall || kind_ == Drawn::alltoallv ||
                            kind_ == Drawn::allgather || kind_ == Drawn::gather;
    return has_blocks ? all() : count_;
  }
  size_t outputs_at(int rank) const { return 2 * shift_ + inputs(rank) + 2; }

  epcclResult_t call_alltoallv(int rank, const std::byte* in, std::byte* out, epcclComm_t comm,
                               epcclStream_t stream) const {
    std::vector<size_t> sent, received, places;
    for (int peer = 0; peer < ranks_; ++peer) {
      sent.push_back(counts_[static_cast<size_t>(rank * ranks_ + peer)]);
      received.push_back(counts_[static_cast<size_t>(peer * ranks_ + rank)]);
      places.push_back(static_cast<size_t>(peer) * count_);
    }
    return epcclAlltoallv(in, sent.data(), places.data(), out, received.data(), places.data(), type_, comm,
                          stream);
  }

  const Drawn kind_;
  const int ranks_;
  size_t count_ = 0, shift_ = 0;
  epcclDataType_t type_ = epcclFloat32;
  epcclRedOp_t operation_ = epcclSum;
  int root_ = 0;
  bool in_place_ = false;
  std::vector<size_t> counts_;  // alltoallv: by sender and receiver
  uint64_t seed_ = 0;
};

inline void copy_on(const GpuRank& gpu, void* to, const void* from, size_t bytes) {
  MUST(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(to), reinterpret_cast<CUdeviceptr>(from), bytes,
                     gpu.stream()));
}

inline void expect_the_hosts_bytes(const DrawnCall& call, const RankContext& context, epcclComm_t comm,
                                   GpuRank& gpu, GpuMemoryKind kind) {
  const std::vector<std::byte> initial = call.memory(context.rank);
  std::vector<std::byte> expected = initial, got(initial.size());
  ASSERT_EQ(call.call(context.rank, expected.data(), comm, nullptr), epcclSuccess)
      << epcclGetLastError(nullptr);
  const GpuMemory memory(kind, initial.size());
  auto* there = reinterpret_cast<std::byte*>(memory.address());
  copy_on(gpu, there, initial.data(), initial.size());
  ASSERT_EQ(call.call(context.rank, there, comm, gpu.as_epccl()), epcclSuccess) << epcclGetLastError(nullptr);
  gpu.wait();  // no copy of pageable memory behind what waits for other ranks
  copy_on(gpu, got.data(), there, got.size());
  gpu.wait();
  ASSERT_EQ(got.size(), expected.size());
  size_t wrong = 0, first = 0;
  for (size_t at = got.size(); at-- > 0;)
    if (got[at] != expected[at]) ++wrong, first = at;
  EXPECT_EQ(wrong, 0U) << "rank " << context.rank << ": " << call.text()
                       << ": bytes are not the host's, from " << first << " on";
}

}  // namespace epccl::tests
