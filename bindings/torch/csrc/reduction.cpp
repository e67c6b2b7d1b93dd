#include "reduction.hpp"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <optional>

#include "communicator.hpp"
#include "tensors.hpp"
#include "versions.hpp"

namespace epccl_torch {
namespace {

using c10d::ReduceOp;

epcclRedOp_t operation_of(const char* what, at::ScalarType type, ReduceOp::RedOpType op) {
  const bool flags = type == at::kBool;
  switch (op) {
    case ReduceOp::SUM:
      return flags ? epcclMax : epcclSum;
    case ReduceOp::PRODUCT:
      return flags ? epcclMin : epcclProd;
    case ReduceOp::MIN:
      return epcclMin;
    case ReduceOp::MAX:
      return epcclMax;
    case ReduceOp::AVG:
      TORCH_CHECK(!flags, "epccl: ", what, ": an average of bool is not supported");
      return epcclAvg;
    case ReduceOp::BAND:
    case ReduceOp::BOR:
    case ReduceOp::BXOR:
    case ReduceOp::PREMUL_SUM:
      return epcclSum;  // handled on their own
    default:
      TORCH_CHECK(false, "epccl: ", what, ": reduction ", static_cast<int>(op), " is unknown");
  }
}

// The call reads the copy, whose memory the allocator uses again behind the call; the factor itself may be gone before.
at::Tensor copied_in_stream(const at::Tensor& factor, at::ScalarType type) {
  const c10::impl::VirtualGuardImpl device(factor.device().type());
  device.recordDataPtrOnStream(factor.storage().data_ptr(), device.getStream(factor.device()));
  return packed(factor.to(factor.options().dtype(type), /*non_blocking=*/true, /*copy=*/true));
}

}  // namespace

bool is_bitwise(const ReduceOp& op) {
  return op.op_ == ReduceOp::BAND || op.op_ == ReduceOp::BOR || op.op_ == ReduceOp::BXOR;
}

at::Tensor as_reals(const char* what, const at::Tensor& tensor, const ReduceOp& op) {
  if (!tensor.is_complex()) return tensor;
  TORCH_CHECK(op.op_ == ReduceOp::SUM || op.op_ == ReduceOp::AVG || op.op_ == ReduceOp::PREMUL_SUM,
              "epccl: ", what, ": of ", tensor.scalar_type(), " there are sums and averages");
  TORCH_CHECK(!tensor.is_conj(), "epccl: ", what,
              ": a conjugated view of a complex tensor: call resolve_conj() first");
  return at::view_as_real(tensor);
}

std::vector<at::Tensor> as_reals(const char* what, const std::vector<at::Tensor>& tensors,
                                 const ReduceOp& op) {
  std::vector<at::Tensor> reals;
  for (const at::Tensor& tensor : tensors) reals.push_back(as_reals(what, tensor, op));
  return reals;
}

void check_reduction(const char* what, const at::Tensor& tensor, const ReduceOp& op) {
  const at::ScalarType type = tensor.scalar_type();
  if (is_bitwise(op)) {
    TORCH_CHECK(c10::isIntegralType(type, true), "epccl: ", what, ": a reduction of bits of ", type,
                " is not supported");
    return;
  }
  TORCH_CHECK(datatype_of(type), "epccl: ", what, ": no reduction of ", type,
              ": there are those of uint8, int8, bool, int32, uint32, int64, uint64, float16, bfloat16, "
              "float32, float64, float8, complex64 and complex128");
  (void)operation_of(what, type, op.op_);
  if (op.op_ == ReduceOp::PREMUL_SUM)
    TORCH_CHECK(c10::isFloatingType(type), "epccl: ", what, ": a pre-multiplied sum of ", type,
                " is not supported");
}

Reduction::Reduction(const char* what, const at::Tensor& tensor, const ReduceOp& reduce, epcclComm_t comm)
    : datatype(datatype_of(tensor.scalar_type()).value()),
      op(operation_of(what, tensor.scalar_type(), reduce.op_)) {
  if (reduce.op_ != ReduceOp::PREMUL_SUM) return;
  const auto& supplement = static_cast<const PreMulSumSupplement&>(*reduce.supplement_);
  const at::Tensor& factor = supplement.tensor_factor;
  const at::ScalarType type = tensor.scalar_type();
  const bool stays = factor.defined() && tensor.is_cuda() && factor.device() == tensor.device();
  scalar_ = stays              ? copied_in_stream(factor, type)
            : factor.defined() ? packed((factor.is_cuda() ? fetched(factor) : factor).to(type))
                               : at::scalar_tensor(supplement.double_factor, at::dtype(type));
  check(epcclRedOpCreatePreMulSum(&op, scalar_.mutable_data_ptr(), datatype,
                                  stays ? epcclScalarDevice : epcclScalarHostImmediate, comm),
        what);
  comm_ = comm;
}

Reduction::~Reduction() {
  if (comm_ != nullptr) (void)epcclRedOpDestroy(op, comm_);
}

void fold_bits(at::Tensor& into, const at::Tensor& other, const ReduceOp& op) {
  if (op.op_ == ReduceOp::BAND)
    into.bitwise_and_(other);
  else if (op.op_ == ReduceOp::BOR)
    into.bitwise_or_(other);
  else
    into.bitwise_xor_(other);
}

}  // namespace epccl_torch
