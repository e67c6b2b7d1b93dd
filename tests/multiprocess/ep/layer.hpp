// One rank's side of a problem, through the C API: group, handle, dispatch, experts, combine, and the way back; everything
// that comes out is compared with what is expected.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "expected.hpp"
#include "numbers.hpp"
#include "problem.hpp"
#include "ranks.hpp"

namespace epccl::tests {

/// A tensor descriptor and its sizes.
struct Tensor {
  Tensor(epcclDataType_t type, void* data, std::vector<size_t> shape) : sizes(std::move(shape)) {
    tensor.ndim = static_cast<unsigned>(sizes.size());
    tensor.datatype = type;
    tensor.data = data;
    tensor.sizes = sizes.data();
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  operator epcclEpTensor_t*() { return &tensor; }  // NOLINT: reads like the descriptor it is

  std::vector<size_t> sizes;
  epcclEpTensor_t tensor = EPCCL_EP_TENSOR_INIT;
};

/// Where the tensors of a call lie, if not where the test has its numbers.
class OtherMemory {
 public:
  virtual ~OtherMemory() = default;
  /// Memory with these bytes, until take_back().
  virtual void* place(void* data, size_t bytes) = 0;
  /// Waits for the call, and brings all that it made back to where place() found it.
  virtual void take_back() = 0;
};

class Layer {
 public:
  /// Makes group and handle; the handle has no routing yet. `stream` is for everything; null: inline. `memory`: for all
  /// tensors; null: the host's.
  Layer(const RankContext& context, epcclComm_t comm, const Problem& problem, epcclStream_t stream = nullptr,
        OtherMemory* memory = nullptr);
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  ~Layer();

  epcclEpHandle_t handle() const { return handle_; }
  epcclEpGroup_t group() const { return group_; }

  /// From now on another problem, of the same sizes but for tokens and tables; followed by update().
  void take(const Problem& problem);
  /// Gives the handle the problem's routing, and checks all counters.
  void update();
  /// Forward: dispatch with weights, experts, combine. `send_only`: in two phases.
  void forward(bool weighted, bool send_only = false);
  /// Backward of a weighted combine: the weighted dispatch of gradients, and weights that go home.
  void backward();
  void check_stats();
  /// Elements of the last dispatch's rows that only pad, where they may be anything.
  size_t padding_changed() const { return padding_changed_; }

 private:
  uint32_t tokens() const { return problem_.tokens[static_cast<size_t>(context_.rank)]; }
  uint32_t rows() const { return expected_->rows(context_.rank); }
  void dispatch(bool weighted, bool send_only);
  void check_received(bool weighted);
  void check_received_topk();
  void apply_experts();
  void combine(bool weighted, bool send_only);
  void check_combined(bool weighted);
  void expect_ok(epcclResult_t result) const;
  Tensor tensor(epcclDataType_t type, void* data, std::vector<size_t> shape) const;
  void finish(epcclResult_t result, bool send_only);
  int64_t expert_of_row(uint32_t row) const { return row_expert_[row]; }
  float weight_of_row(uint32_t row) const { return row_weight_[row]; }

  const RankContext& context_;
  Problem problem_;
  std::optional<Expected> expected_;
  epcclStream_t stream_;
  OtherMemory* const memory_;
  epcclEpGroup_t group_ = nullptr;
  epcclEpHandle_t handle_ = nullptr;
  std::vector<int64_t> row_expert_;  // expert-major
  std::vector<float> row_weight_;
  Numbers input_, received_, combined_;
  size_t padding_changed_ = 0;
  std::vector<float> received_weights_, home_weights_;
  std::vector<int32_t> received_topk_;
};

}  // namespace epccl::tests
