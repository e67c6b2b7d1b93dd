// In place of expert_compute_blas.cpp, in a build without a BLAS.
#include "perf/src/overlap/matrix_products.hpp"

namespace epccl::perf {

struct MatrixProducts::Matrices {};

Status MatrixProducts::available() {
  return error(
      Code::invalid_argument,
      "--overlap: its matrix products need a BLAS with cblas.h, and this build has none: install one "
      "(libblis-serial-dev, libopenblas-dev, ...), and configure and build again");
}

std::string MatrixProducts::library() {
  return {};
}

MatrixProducts::MatrixProducts() = default;
MatrixProducts::~MatrixProducts() = default;

void MatrixProducts::run(int) {}

}  // namespace epccl::perf
