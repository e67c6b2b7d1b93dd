// Messages of a pattern that every rank knows: from any memory to any memory, each rank's half of them in two streams.
#pragma once

#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <vector>

#include "../api/group_patterns.hpp"
#include "../api/halves.hpp"
#include "../api/ranks.hpp"
#include "../ep_cuda/gpu_memory.hpp"
#include "cuda_calls.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

using Bytes = std::vector<uint8_t>;

inline uint64_t new_seed() {
  uint64_t seed = std::random_device{}();
  if (const char* given = std::getenv("EPCCL_TEST_SEED"); given != nullptr)
    seed = std::strtoull(given, nullptr, 10);
  std::printf("random seed %llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

enum class Where { cuda_malloc, mem_alloc, unmappable, host };

inline constexpr Where plain = Where::cuda_malloc;

/// A message of a pattern that every rank knows.
struct Letter {
  int from, to;
  size_t bytes;
  Where source, destination;
};

/// A buffer of a message; of a GPU, its contents come and go in the order of a stream.
class Buffer {
 public:
  Buffer(Where where, size_t bytes) : where_(where), host_(bytes) {
    if (where == Where::mem_alloc) {
      EXPECT_EQ(epcclMemAlloc(&own_, std::max<size_t>(bytes, 1)), epcclSuccess) << epcclGetLastError(nullptr);
    } else if (where != Where::host) {
      memory_.emplace_back(where == Where::unmappable ? GpuMemoryKind::unmappable : GpuMemoryKind::plain,
                           std::max<size_t>(bytes, 1));
    }
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (own_ != nullptr) {
      EXPECT_EQ(epcclMemFree(own_), epcclSuccess);
    }
  }
  void* data() {
    if (where_ == Where::host) return host_.data();
    return own_ != nullptr ? own_ : reinterpret_cast<void*>(memory_.front().address());
  }
  epcclStream_t stream(const GpuRank& gpu) const { return where_ == Where::host ? nullptr : gpu.as_epccl(); }
  void put(const Bytes& values, const GpuRank& gpu) {
    host_ = values;
    if (where_ != Where::host && !host_.empty()) copy(address(), here(), gpu);
  }
  void get(const GpuRank& gpu) {
    if (where_ == Where::host || host_.empty()) return;
    gpu.wait();  // no copy of pageable memory behind what waits for other ranks
    copy(here(), address(), gpu);
  }
  const Bytes& values() const { return host_; }

 private:
  CUdeviceptr address() { return reinterpret_cast<CUdeviceptr>(data()); }
  CUdeviceptr here() { return reinterpret_cast<CUdeviceptr>(host_.data()); }
  void copy(CUdeviceptr to, CUdeviceptr from, const GpuRank& gpu) {
    EXPECT_EQ(cuMemcpyAsync(to, from, host_.size(), gpu.stream()), CUDA_SUCCESS);
  }
  const Where where_;
  Bytes host_;
  std::deque<GpuMemory> memory_;
  void* own_ = nullptr;
};

inline Bytes content(const Letter& letter, int mark) {
  Bytes values(letter.bytes);
  for (size_t i = 0; i < values.size(); ++i) values[i] = unique_byte(letter.from, letter.to, i, mark);
  return values;
}

/// This rank's half of a pattern: its messages take turns in two streams, each behind what the stream had before.
class Half {
 public:
  Half(int rank, const std::vector<Letter>& letters, const GpuRank& first, const GpuRank& second, int mark) {
    for (size_t i = 0; i < letters.size(); ++i) {
      const Letter& letter = letters[i];
      const GpuRank& gpu = parts_.size() % 3 == 2 ? second : first;
      if (letter.from == rank) parts_.emplace_back(true, letter.to, gpu, letter.source, letter, i);
      if (letter.to == rank) parts_.emplace_back(false, letter.from, gpu, letter.destination, letter, i);
    }
    fill(mark);
  }
  /// Other contents of the same messages, with every mark. None is being read any more, by what fill() had queued before.
  void fill(int mark) {
    for (Part& part : parts_) {
      part.values = content(part.letter, mark + 1 + static_cast<int>(part.number));
      part.buffer.put(part.is_send ? part.values : Bytes(part.letter.bytes, poison), part.gpu);
    }
  }
  void wait() const {
    for (const Part& part : parts_) part.gpu.wait();
  }
  void issue(epcclComm_t comm) {
    for (Part& part : parts_) {
      const size_t bytes = part.values.size();
      void* const data = part.buffer.data();
      const epcclStream_t stream = part.buffer.stream(part.gpu);
      EXPECT_EQ(part.is_send ? epcclSend(data, bytes, epcclUint8, part.peer, comm, stream)
                             : epcclRecv(data, bytes, epcclUint8, part.peer, comm, stream),
                epcclSuccess)
          << epcclGetLastError(comm);
    }
  }
  void check() {
    for (Part& part : parts_)
      if (!part.is_send) part.buffer.get(part.gpu);
    wait();
    for (Part& part : parts_)
      if (!part.is_send) {
        EXPECT_TRUE(part.buffer.values() == part.values)
            << part.values.size() << " bytes from rank " << part.peer;
      }
  }
  void run(epcclComm_t comm) { run_as_group(*this, comm); }

 private:
  struct Part {
    Part(bool sends, int other, const GpuRank& its_gpu, Where where, const Letter& its_letter,
         size_t its_number)
        : is_send(sends),
          peer(other),
          gpu(its_gpu),
          letter(its_letter),
          number(its_number),
          buffer(where, letter.bytes) {}
    bool is_send;
    int peer;
    const GpuRank& gpu;
    Letter letter;
    size_t number;  // of the letter
    Bytes values;
    Buffer buffer;
  };
  std::deque<Part> parts_;
};

// Any memory at either end; now and then a rank has all its on the host.
inline std::vector<Letter> pattern(int ranks, std::mt19937_64& random, bool may_be_on_host = true) {
  std::vector<bool> on_host;
  for (int rank = 0; rank < ranks; ++rank) on_host.push_back(may_be_on_host && random() % 6 == 0);
  std::vector<Letter> letters;
  const auto where = [&](int rank) {
    return on_host[static_cast<size_t>(rank)] ? Where::host
                                              : static_cast<Where>(random() % (may_be_on_host ? 4 : 3));
  };
  draw_pattern(ranks, random, [&](int from, int to) {
    const uint64_t dice = random() % 10;
    const size_t bytes = dice == 0 ? 0 : dice == 1 ? random() % 100'000 : 1 + random() % 9000;
    const Where source = where(from), destination = where(to);
    letters.push_back({from, to, bytes, source, destination});
  });
  return letters;
}

/// A second communicator of the same ranks; rank 0 makes its id.
inline RankContext another(const RankContext& context, epcclComm_t comm) {
  RankContext second = context;
  if (context.rank == 0) {
    EXPECT_EQ(epcclGetUniqueId(&second.id), epcclSuccess);
  }
  EXPECT_EQ(epcclBroadcast(&second.id, &second.id, sizeof second.id, epcclUint8, 0, comm, nullptr),
            epcclSuccess);
  return second;
}

}  // namespace epccl::tests
