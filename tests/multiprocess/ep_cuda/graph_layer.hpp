// A layer of static mode whose tensors stay where they are, as programs have it that capture their steps into CUDA graphs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../api_cuda/graph_rank.hpp"
#include "gpu_memory.hpp"
#include "layer.hpp"

namespace epccl::tests {

/// Bytes in GPU memory.
class GpuBytes {
 public:
  GpuBytes(const GpuRank& gpu, GpuMemoryKind kind, size_t bytes)
      : gpu_(gpu), bytes_(bytes), memory_(kind, std::max<size_t>(bytes, 1)) {}

  void* data() const {
    return bytes_ == 0 ? nullptr
                       : reinterpret_cast<void*>(memory_.address());  // NOLINT: as the driver has it
  }
  size_t bytes() const { return bytes_; }
  // In the stream's order; `from` must stay.
  void put(const std::vector<std::byte>& from) const {
    copy(memory_.address(), reinterpret_cast<CUdeviceptr>(from.data()));
  }
  void copy_from(const GpuBytes& other) const { copy(memory_.address(), other.memory_.address()); }
  std::vector<std::byte> get() const {
    std::vector<std::byte> bytes(bytes_);
    gpu_.wait();  // no copy of pageable memory behind what waits for other ranks
    copy(reinterpret_cast<CUdeviceptr>(bytes.data()), memory_.address());
    EXPECT_EQ(cuStreamSynchronize(gpu_.stream()), CUDA_SUCCESS);
    return bytes;
  }

 private:
  void copy(CUdeviceptr to, CUdeviceptr from) const {
    if (bytes_ == 0) return;
    EXPECT_EQ(cuMemcpyAsync(to, from, bytes_, gpu_.stream()), CUDA_SUCCESS);
  }

  const GpuRank& gpu_;
  const size_t bytes_;
  const GpuMemory memory_;
};

/// One rank's group and handle.
class StepHandle {
 public:
  StepHandle(const Problem& problem, epcclComm_t comm);
  StepHandle(const StepHandle&) = delete;
  StepHandle& operator=(const StepHandle&) = delete;
  ~StepHandle();
  operator epcclEpHandle_t() const { return handle_; }  // NOLINT: reads like the handle it is

 private:
  epcclEpGroup_t group_ = nullptr;
  epcclEpHandle_t handle_ = nullptr;
};

/// Everything that a step of one rank reads and writes, for a number of tokens that stays.
class StaticStep {
 public:
  StaticStep(const RankContext& context, const GpuRank& gpu, const Problem& problem, uint32_t tokens,
             GpuMemoryKind kind = GpuMemoryKind::plain);

  /// New tokens, tables and weights, by `round`; what the step will write is poisoned. The first entry of row `bad_token` of the
  /// table, if that is not -1, is `bad`: no expert.
  void fill(uint64_t round, int bad_token = -1, int64_t bad = 9);

  // What is to be captured, or called. Each may be a graph of its own.
  void update(epcclEpHandle_t handle);
  /// Rows, their weights and numbers; and the same quantised.
  void dispatch(epcclEpHandle_t handle);
  /// Experts, combine; backward.
  void combine(epcclEpHandle_t handle);
  void all(epcclEpHandle_t handle) {
    update(handle);
    dispatch(handle);
    combine(handle);
  }

  /// Names of what differs.
  std::string difference(const StaticStep& other) const;
  /// Counters of this rank's experts.
  std::vector<int32_t> expert_counters() const;
  /// Of [tokens, k].
  std::vector<float> home_weights() const;

 private:
  struct Named {
    const char* name;
    std::unique_ptr<GpuBytes> bytes;
  };
  size_t ranks() const { return static_cast<size_t>(problem_.ranks()); }
  size_t weights_of_a_row() const { return problem_.by_expert() ? 1 : problem_.k; }
  const GpuBytes& add(const char* name, size_t bytes);
  Tensor tensor(const GpuBytes& bytes, epcclDataType_t type, std::vector<size_t> shape) const {
    return Tensor(type, bytes.data(), std::move(shape));
  }
  void put(const GpuBytes& to, std::vector<std::byte> bytes);
  void put_inputs(uint64_t round, int bad_token, int64_t bad);
  void dispatch_rows(epcclEpHandle_t handle, const GpuBytes& from, const GpuBytes& to, bool weighted);
  void dispatch_as_float8(epcclEpHandle_t handle);
  void combine_rows(epcclEpHandle_t handle, const GpuBytes& from, const GpuBytes& to, bool weighted,
                    bool with_weights);
  static void expect_ok(epcclResult_t result) {
    EXPECT_EQ(result, epcclSuccess) << epcclGetLastError(nullptr);
  }

  const RankContext& context_;
  const GpuRank& gpu_;
  const Problem problem_;
  const GpuMemoryKind kind_;
  const size_t tokens_, experts_, rows_, row_bytes_;
  std::vector<Named> results_;
  std::vector<std::vector<std::byte>> on_their_way_;
  const GpuBytes table_, input_, weights_, experts_out_, gradients_;
  const GpuBytes &counters_, &offsets_, &lost_, &sources_, &total_, &dropped_;
  const GpuBytes &received_, &received_weights_, &received_topk_, &float8_, &scales_;
  const GpuBytes &combined_, &backward_, &home_tokens_, &home_weights_;
};

}  // namespace epccl::tests
