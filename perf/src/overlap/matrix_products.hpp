// The compute of --overlap: matrix products by a BLAS on the calling thread, or by cuBLAS on the rank's GPU.
#pragma once

#include <memory>
#include <string>

#include "base/status.hpp"

namespace epccl::perf {

class MatrixProducts {
 public:
  /// `device`: "host" or "cuda". Error: there is no library for it.
  static Status available(const std::string& device);
  /// The library's name; empty where there is none.
  static std::string library(const std::string& device);
  /// cuda: of the calling thread's GPU, of matrices of `size` rows and columns.
  static Result<std::unique_ptr<MatrixProducts>> make(const std::string& device, int size);

  MatrixProducts() = default;
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;
  virtual ~MatrixProducts() = default;

  /// So many products, with one matrix of weights after the other; returns when they are made.
  virtual Status run(int products) = 0;
};

}  // namespace epccl::perf
