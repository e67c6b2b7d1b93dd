// In place of blas_products.cpp, in a build without a BLAS.
#include "perf/src/overlap/blas_products.hpp"

namespace epccl::perf {

Status blas_available() {
  return error(
      Code::invalid_argument,
      "--overlap: its matrix products need a BLAS with cblas.h, and this build has none: install one "
      "(libblis-serial-dev, libopenblas-dev, ...), and configure and build again");
}

std::string blas_library() {
  return {};
}

Result<std::unique_ptr<MatrixProducts>> make_blas_products() {
  return blas_available();
}

}  // namespace epccl::perf
