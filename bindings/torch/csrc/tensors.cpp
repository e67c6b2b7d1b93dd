#include "tensors.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "pause.hpp"

namespace epccl_torch {

std::optional<epcclDataType_t> datatype_of(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return epcclInt8;
    case at::kByte:
    case at::kBool:
      return epcclUint8;
    case at::kInt:
      return epcclInt32;
    case at::kUInt32:
      return epcclUint32;
    case at::kLong:
      return epcclInt64;
    case at::kUInt64:
      return epcclUint64;
    case at::kHalf:
      return epcclFloat16;
    case at::kFloat:
      return epcclFloat32;
    case at::kDouble:
      return epcclFloat64;
    case at::kBFloat16:
      return epcclBfloat16;
    case at::kFloat8_e4m3fn:
      return epcclFloat8e4m3;
    case at::kFloat8_e5m2:
      return epcclFloat8e5m2;
    default:
      return std::nullopt;
  }
}

Unit unit_of(const at::Tensor& tensor) {
  if (const auto own = datatype_of(tensor.scalar_type())) return {*own, 1};
  const auto bytes = static_cast<size_t>(tensor.element_size());
  if (bytes % sizeof(uint64_t) == 0) return {epcclUint64, bytes / sizeof(uint64_t)};
  return {epcclUint8, bytes};
}

void check_tensor(const char* what, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "epccl: ", what, " is undefined");
  TORCH_CHECK(tensor.layout() == at::kStrided, "epccl: ", what, " must be dense, not ", tensor.layout());
  TORCH_CHECK(tensor.device().is_cpu() || tensor.device().is_cuda(), "epccl: ", what, " is on ",
              tensor.device(), ": there are calls for tensors of the CPU and of CUDA devices");
}

void check_same_dtype(const char* what, const at::Tensor& one, const at::Tensor& other) {
  TORCH_CHECK(one.scalar_type() == other.scalar_type(), "epccl: ", what, ": tensors of ", one.scalar_type(),
              " and of ", other.scalar_type());
}

void check_written(const char* what, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.layout() != at::kStrided) continue;
    TORCH_CHECK(at::has_internal_overlap(tensor) != at::MemOverlap::Yes, what,
                ": several elements of a tensor of sizes ", tensor.sizes(), " and strides ", tensor.strides(),
                " are one in memory, as after expand(): it cannot be written to; use a clone()");
  }
}

std::optional<c10::Device> common_device(const char* what,
                                         std::initializer_list<const std::vector<at::Tensor>*> lists) {
  std::optional<c10::Device> found;
  for (const std::vector<at::Tensor>* list : lists)
    for (const at::Tensor& tensor : *list) {
      if (!found) found = tensor.device();
      TORCH_CHECK(tensor.device() == *found, what, ": a tensor on ", *found, " and one on ", tensor.device(),
                  ": all tensors of a call must be on one device");
    }
  return found;
}

at::Tensor& single(const char* what, std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "epccl: ", what, " takes one tensor, not ", tensors.size());
  check_tensor(what, tensors[0]);
  return tensors[0];
}

Parts::Parts(std::vector<size_t> given) : counts(std::move(given)), places(counts.size()) {
  std::exclusive_scan(counts.begin(), counts.end(), places.begin(), size_t{0});
}

void Parts::scale(size_t by) {
  for (size_t& value : counts) value *= by;
  for (size_t& value : places) value *= by;
}

at::Tensor pinned_room(const at::Tensor& tensor) {
  return at::Tensor(at::detail::empty_generic(tensor.sizes(), at::getHostAllocator(tensor.device().type()),
                                              c10::DispatchKeySet(c10::DispatchKey::CPU),
                                              tensor.scalar_type(), std::nullopt));
}

at::Tensor fetched(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const c10::DeviceGuard current(tensor.device());
  at::Tensor host = pinned_room(tensor);
  // Of a conjugated or negated view copy_() would bring the memory, and change the sign here before it has come.
  const at::Tensor there = packed(tensor);
  host.copy_(there, true);
  c10::Event copied(tensor.device().type());
  copied.record(c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device()));
  for (Pause pause; !copied.query();) pause.sleep();
  return host;
}

bool is_plain(const at::Tensor& tensor) {
  return !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor packed(const at::Tensor& tensor) {
  return is_plain(tensor) ? tensor.contiguous() : tensor.resolve_conj().resolve_neg().contiguous();
}

bool overlap(const at::Tensor& one, const at::Tensor& other) {
  const auto* a = static_cast<const char*>(one.const_data_ptr());
  const auto* b = static_cast<const char*>(other.const_data_ptr());
  return one.nbytes() > 0 && other.nbytes() > 0 && a < b + other.nbytes() && b < a + one.nbytes();
}

bool clash(const at::Tensor& part, const at::Tensor& whole, size_t own) {
  if (!overlap(part, whole)) return false;
  const size_t place = own * static_cast<size_t>(whole.element_size());
  return part.const_data_ptr() != static_cast<const char*>(whole.const_data_ptr()) + place;
}

at::Tensor apart(const at::Tensor& source, const at::Tensor& whole, size_t own) {
  return clash(source, whole, own) ? source.clone() : source;
}

Target::Target(const at::Tensor& tensor, bool load)
    : tensor_(tensor),
      memory_(is_plain(tensor) && tensor.is_contiguous() ? tensor
              : load                                     ? packed(tensor)
                                                         : at::empty(tensor.sizes(), tensor.options())) {}

void Target::finish() {
  if (!memory_.is_same(tensor_)) tensor_.copy_(memory_);
}

Blocks::Blocks(const std::vector<at::Tensor>& tensors) : tensors_(tensors) {
  TORCH_CHECK(!tensors.empty(), "epccl: an empty list of tensors");
  in_place_ = true;
  const char* next = nullptr;
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors_) {
    check_tensor("a tensor of the list", tensor);
    check_same_dtype("list of tensors", tensors_[0], tensor);
    counts_.push_back(static_cast<size_t>(tensor.numel()));
    total_ += tensor.numel();
    in_place_ &= is_plain(tensor) && tensor.is_contiguous();
    if (tensor.numel() == 0) continue;
    const auto* at = static_cast<const char*>(tensor.const_data_ptr());
    // Allocations of a GPU that lie side by side by chance are not one buffer: each is mapped by peers on its own.
    in_place_ &= first == nullptr || (at == next && (tensor.is_cpu() || tensor.is_alias_of(*first)));
    if (first == nullptr) {
      first = &tensor;
      first_ = const_cast<char*>(at);
    }
    next = at + tensor.nbytes();
  }
}

void* Blocks::data() {
  if (in_place_) return first_;
  if (!buffer_.defined()) buffer_ = at::empty({total_}, tensors_[0].options());
  return buffer_.mutable_data_ptr();
}

at::Tensor Blocks::flat() {
  void* const address = data();
  if (!in_place_) return buffer_;
  return at::for_blob(address, {total_})
      .options(tensors_[0].options())
      .target_device(tensors_[0].device())
      .make_tensor();
}

void Blocks::load() {
  if (in_place_) return;
  (void)data();
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
