// What differs between the versions of PyTorch that this builds with: what later ones name, earlier ones have under another name or lack.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#define EPCCL_PYTORCH_AT_LEAST(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

// Of a member function that backends and their work may have since then; before, nobody calls it.
#if EPCCL_PYTORCH_AT_LEAST(14)
#define EPCCL_OVERRIDES_SINCE_2_14 override
#else
#define EPCCL_OVERRIDES_SINCE_2_14
#endif
#if EPCCL_PYTORCH_AT_LEAST(15)
#define EPCCL_OVERRIDES_SINCE_2_15 override
#else
#define EPCCL_OVERRIDES_SINCE_2_15
#endif

namespace epccl_torch {

#if EPCCL_PYTORCH_AT_LEAST(13)
using PreMulSumSupplement = c10d::PreMulSumSupplement;
#else
using PreMulSumSupplement = c10d::NCCLPreMulSumSupplement;
#endif

#if EPCCL_PYTORCH_AT_LEAST(14)
inline constexpr c10d::OpType gather_of_tensors = c10d::OpType::ALLGATHER_INTO_TENSOR_COALESCED;
#else
inline constexpr c10d::OpType gather_of_tensors = c10d::OpType::ALLGATHER_COALESCED;
#endif

#if EPCCL_PYTORCH_AT_LEAST(12)
inline constexpr c10d::OpType reduce_scatter_of_tensors = c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
#else
inline constexpr c10d::OpType reduce_scatter_of_tensors = c10d::OpType::REDUCE_SCATTER;
#endif

}  // namespace epccl_torch
