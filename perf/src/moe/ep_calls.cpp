#include "perf/src/moe/ep_calls.hpp"

#include <algorithm>

#include "perf/src/gpu.hpp"

namespace epccl::perf::moe {
namespace {

/// A matrix as the library wants it. Stays where it is: the library's struct points into it.
class Tensor {
 public:
  explicit Tensor(const Matrix& matrix)
      : given_(matrix.data != nullptr), sizes_{matrix.rows, matrix.columns}, tensor_(EPCCL_EP_TENSOR_INIT) {
    tensor_.ndim = matrix.columns == 0 ? 1 : 2;
    tensor_.datatype = matrix.type;
    tensor_.data = matrix.data;
    tensor_.sizes = sizes_.data();
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  epcclEpTensor_t* get() { return given_ ? &tensor_ : nullptr; }

 private:
  bool given_;
  std::array<size_t, 2> sizes_;
  epcclEpTensor_t tensor_;
};

epcclEpLayout_t library_layout(Layout layout) {
  if (layout == Layout::expert_major) return EPCCL_EP_LAYOUT_EXPERT_MAJOR;
  return layout == Layout::rank_major ? EPCCL_EP_LAYOUT_RANK_MAJOR : EPCCL_EP_LAYOUT_FLAT;
}

}  // namespace

Result<EpGroup> EpGroup::create(Communicator& communicator, const epcclEpGroupConfig_t& config) {
  epcclEpGroup_t group = nullptr;
  EPCCL_TRY(api_status("epcclEpCreateGroup", epcclEpCreateGroup(&group, communicator.get(), &config),
                       communicator.get()));
  return EpGroup(communicator, group);
}

EpGroup::~EpGroup() {
  if (group_ != nullptr) static_cast<void>(epcclEpGroupDestroy(group_));
}

Result<EpHandle> EpHandle::create(EpGroup& group, Layout layout, const epcclEpHandleConfig_t& config,
                                  const Stream& stream) {
  epcclEpHandle_t handle = nullptr;
  EPCCL_TRY(api_status("epcclEpCreateHandle",
                       epcclEpCreateHandle(&handle, group.get(), library_layout(layout), nullptr, nullptr,
                                           &config, stream.get()),
                       group.communicator().get()));
  return EpHandle(group, handle, stream);
}

EpHandle::~EpHandle() {
  if (handle_ != nullptr) static_cast<void>(epcclEpHandleDestroy(handle_));
}

Status EpHandle::finish(const char* call, epcclResult_t result, Until until) const {
  const epcclComm_t comm = group_->communicator().get();
  EPCCL_TRY(api_status(call, result, comm));
  if (!stream_->goes_on() || until == Until::started || captured_ != nullptr) return {};
  return stream_->wait(comm);
}

Status EpHandle::complete() {
  if (!stream_->goes_on()) return finish("epcclEpComplete", epcclEpComplete(handle_));
  return stream_->wait(group_->communicator().get());
}

Status EpHandle::place(const TopkTable& table) {
  Gpu* const gpu = stream_->gpu();
  if (gpu == nullptr) return {};
  const size_t bytes = table.experts.size() * sizeof(int64_t);
  if (table_ == nullptr || bytes > table_bytes_) {
    table_bytes_ = std::max(bytes, sizeof(int64_t));
    EPCCL_ASSIGN(std::byte * memory, gpu->allocate(table_bytes_, false));
    table_ = std::shared_ptr<std::byte>(memory, [gpu](std::byte* data) { gpu->free(data, false); });
  }
  return gpu->copy(table_.get(), reinterpret_cast<const std::byte*>(table.experts.data()), bytes);
}

Result<uint64_t> EpHandle::update(const TopkTable& table) {
  static int64_t nothing = 0;
  auto* experts = table.tokens == 0 ? &nothing : const_cast<int64_t*>(table.experts.data());  // only read
  if (table_ != nullptr) experts = reinterpret_cast<int64_t*>(table_.get());
  Tensor topk({experts, table.tokens, table.topk, epcclInt64});
  int64_t rows = 0;
  Tensor total({&rows, 1, 0, epcclInt64});
  epcclEpLayoutInfo_t info = EPCCL_EP_LAYOUT_INFO_INIT;
  if (captured_ == nullptr) info.recv_total_counter = total.get();
  EPCCL_TRY(finish("epcclEpUpdateHandle", epcclEpUpdateHandle(handle_, topk.get(), &info, stream())));
  return static_cast<uint64_t>(rows);
}

Status EpHandle::dispatch(const DispatchArrays& arrays, Until until) {
  Tensor tokens(arrays.tokens), weights(arrays.weights), received(arrays.received),
      received_weights(arrays.received_weights), received_scales(arrays.received_scales);
  epcclEpDispatchInputs_t inputs = EPCCL_EP_DISPATCH_INPUTS_INIT;
  inputs.tokens = tokens.get();
  inputs.topk_weights = weights.get();
  epcclEpDispatchOutputs_t outputs = EPCCL_EP_DISPATCH_OUTPUTS_INIT;
  outputs.tokens = received.get();
  outputs.topk_weights = received_weights.get();
  outputs.scales = received_scales.get();
  epcclEpDispatchConfig_t config = EPCCL_EP_DISPATCH_CONFIG_INIT;
  config.send_only = send_only(until);
  return finish("epcclEpDispatch", epcclEpDispatch(handle_, &inputs, &outputs, &config, stream()), until);
}

Status EpHandle::combine(const CombineArrays& arrays, Until until) {
  Tensor rows(arrays.rows), combined(arrays.combined);
  epcclEpCombineInputs_t inputs = EPCCL_EP_COMBINE_INPUTS_INIT;
  inputs.tokens = rows.get();
  epcclEpCombineOutputs_t outputs = EPCCL_EP_COMBINE_OUTPUTS_INIT;
  outputs.tokens = combined.get();
  epcclEpCombineConfig_t config = EPCCL_EP_COMBINE_CONFIG_INIT;
  config.weighted = arrays.weighted ? 1 : 0;
  config.send_only = send_only(until);
  return finish("epcclEpCombine", epcclEpCombine(handle_, &inputs, &outputs, &config, stream()), until);
}

Result<epcclEpStats_t> EpHandle::stats() const {
  epcclEpStats_t stats = EPCCL_EP_STATS_INIT;
  EPCCL_TRY(api_status("epcclEpGetStats", epcclEpGetStats(handle_, &stats), group_->communicator().get()));
  return stats;
}

}  // namespace epccl::perf::moe
