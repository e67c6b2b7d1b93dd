// Reductions of torch.distributed in the library's terms.
#pragma once

#include <ATen/core/Tensor.h>
#include <epccl/epccl.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace epccl_torch {

/// Datatype and operation for a tensor's dtype. bool is uint8 of 0 and 1, of which a sum is "any" and a product is "all", as NCCL's
/// process group has it.
struct Reduction {
  /// Throws where the library has no such reduction, with what it has.
  Reduction(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op, epcclComm_t comm);
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;
  ~Reduction();

  epcclDataType_t datatype;
  epcclRedOp_t op;

 private:
  epcclComm_t comm_ = nullptr;  // where the operation was made for it
  at::Tensor scalar_;           // that the call reads
};

/// Whether the operation is of bits, which the library does not have: those are gathered and folded here.
bool is_bitwise(const c10d::ReduceOp& op);
/// Complex numbers as pairs of real ones, which are added up alike. Other tensors as they are.
at::Tensor as_reals(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op);
std::vector<at::Tensor> as_reals(const char* what, const std::vector<at::Tensor>& tensors,
                                 const c10d::ReduceOp& op);
/// Throws what Reduction would throw, on the calling thread, before anything is queued.
void check_reduction(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op);
/// `into` = `into` op `other`, bit by bit.
void fold_bits(at::Tensor& into, const at::Tensor& other, const c10d::ReduceOp& op);

}  // namespace epccl_torch
