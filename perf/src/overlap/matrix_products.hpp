// The compute of --overlap: matrix products by a BLAS, on the calling thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.hpp"

namespace epccl::perf {

class MatrixProducts {
 public:
  /// Error: this build has no BLAS.
  static Status available();
  /// The library's name; empty where there is none.
  static std::string library();

  MatrixProducts();
  ~MatrixProducts();
  MatrixProducts(const MatrixProducts&) = delete;
  MatrixProducts& operator=(const MatrixProducts&) = delete;

  /// So many products, with one matrix of weights after the other.
  void run(int products);

 private:
  struct Matrices;
  std::unique_ptr<Matrices> matrices_;
};

}  // namespace epccl::perf
