#include "tensors.hpp"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace epccl_torch {

Unit unit_of(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return {epcclUint8, 1};
    case 2:
      return {epcclFloat16, 1};
    case 4:
      return {epcclUint32, 1};
    case 8:
      return {epcclUint64, 1};
    default:
      return {epcclUint8, static_cast<size_t>(tensor.element_size())};
  }
}

void check_tensor(const char* what, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "epccl: ", what, " is undefined");
  TORCH_CHECK(tensor.layout() == at::kStrided, "epccl: ", what, " must be dense, not ", tensor.layout());
  TORCH_CHECK(tensor.device().is_cpu(), "epccl: ", what, " is on ", tensor.device(),
              ": this backend was built for CPU tensors");
}

void check_same_dtype(const char* what, const at::Tensor& one, const at::Tensor& other) {
  TORCH_CHECK(one.scalar_type() == other.scalar_type(), "epccl: ", what, ": tensors of ", one.scalar_type(),
              " and of ", other.scalar_type());
}

at::Tensor& single(const char* what, std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "epccl: ", what, " takes one tensor, not ", tensors.size());
  check_tensor(what, tensors[0]);
  return tensors[0];
}

bool overlap(const at::Tensor& one, const at::Tensor& other) {
  const auto* a = static_cast<const char*>(one.const_data_ptr());
  const auto* b = static_cast<const char*>(other.const_data_ptr());
  return one.nbytes() > 0 && other.nbytes() > 0 && a < b + other.nbytes() && b < a + one.nbytes();
}

Target::Target(const at::Tensor& tensor, bool load)
    : tensor_(tensor),
      memory_(tensor.is_contiguous() ? tensor
              : load                 ? tensor.contiguous()
                                     : at::empty(tensor.sizes(), tensor.options())) {}

void Target::finish() {
  if (!memory_.is_same(tensor_)) tensor_.copy_(memory_);
}

Blocks::Blocks(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {
  TORCH_CHECK(!tensors.empty(), "epccl: an empty list of tensors");
  int64_t total = 0;
  in_place_ = true;
  const char* next = nullptr;
  for (const at::Tensor& tensor : tensors_) {
    check_tensor("a tensor of the list", tensor);
    check_same_dtype("list of tensors", tensors_[0], tensor);
    const auto* at = static_cast<const char*>(tensor.const_data_ptr());
    in_place_ &= tensor.is_contiguous() && (next == nullptr || tensor.numel() == 0 || at == next);
    if (tensor.numel() > 0) {
      if (data_ == nullptr) data_ = const_cast<char*>(at);
      next = at + tensor.nbytes();
    }
    counts_.push_back(static_cast<size_t>(tensor.numel()));
    total += tensor.numel();
  }
  if (in_place_) return;
  buffer_ = at::empty({total}, tensors_[0].options());
  data_ = buffer_.mutable_data_ptr();
}

void Blocks::load() {
  if (in_place_) return;
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    buffer_.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    at += tensor.numel();
  }
}

void Blocks::store() {
  if (in_place_) return;
  int64_t at = 0;
  for (const at::Tensor& tensor : tensors_) {
    tensor.copy_(buffer_.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

bool Blocks::equal() const {
  return std::ranges::all_of(counts_, [this](size_t count) { return count == counts_[0]; });
}

}  // namespace epccl_torch
