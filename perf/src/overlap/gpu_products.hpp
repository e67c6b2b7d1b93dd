// Matrix products by cuBLAS, in a stream of their own. Nothing is linked: libcublas and the driver are opened when they are needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "perf/src/overlap/matrix_products.hpp"

namespace epccl::perf {

/// The few functions that are used, as cublas_v2.h and cuda.h have them.
class Cublas {
 public:
  /// Found once.
  static const Result<std::unique_ptr<Cublas>>& load();
  /// The first of these libraries that can be opened; the driver as EPCCL_CUDA_LIB says. Error: none can, or one lacks a function.
  static Result<std::unique_ptr<Cublas>> open(std::span<const char* const> libraries);

  const std::string& name() const { return name_; }

  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, void* stream) = nullptr;
  int (*gemm)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
              const void* a, int type_a, int stride_a, const void* b, int type_b, int stride_b,
              const void* beta, void* c, int type_c, int stride_c, int compute, int algorithm) = nullptr;
  int (*allocate)(uint64_t* address, size_t bytes) = nullptr;
  int (*free)(uint64_t address) = nullptr;
  int (*copy)(uint64_t to, uint64_t from, size_t bytes, void* stream) = nullptr;
  int (*create_stream)(void** stream, unsigned flags) = nullptr;
  int (*destroy_stream)(void* stream) = nullptr;
  int (*synchronize)(void* stream) = nullptr;

 private:
  std::string name_;
};

/// Of matrices of `size` rows and columns.
Result<std::unique_ptr<MatrixProducts>> make_gpu_products(int size);

}  // namespace epccl::perf
