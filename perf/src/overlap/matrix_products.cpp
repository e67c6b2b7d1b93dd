#include "perf/src/overlap/matrix_products.hpp"

#include "perf/src/overlap/blas_products.hpp"
#include "perf/src/overlap/gpu_products.hpp"

namespace epccl::perf {

Status MatrixProducts::available(const std::string& device) {
  return device == "cuda" ? Cublas::load().status() : blas_available();
}

std::string MatrixProducts::library(const std::string& device) {
  if (device != "cuda") return blas_library();
  const auto& cublas = Cublas::load();
  return cublas.ok() ? (*cublas)->name() : "";
}

Result<std::unique_ptr<MatrixProducts>> MatrixProducts::make(const std::string& device, int size) {
  return device == "cuda" ? make_gpu_products(size) : make_blas_products();
}

}  // namespace epccl::perf
