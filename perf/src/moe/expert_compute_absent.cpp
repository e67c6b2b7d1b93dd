// In place of expert_compute_blas.cpp, in a build without a BLAS.
#include "perf/src/moe/expert_compute.hpp"

namespace epccl::perf::moe {

struct ExpertCompute::Matrices {};

Status ExpertCompute::available() {
  return error(
      Code::invalid_argument,
      "--overlap: its matrix products need a BLAS with cblas.h, and this build has none: install one "
      "(libblis-serial-dev, libopenblas-dev, ...), and configure and build again");
}

std::string ExpertCompute::library() {
  return {};
}

ExpertCompute::ExpertCompute() = default;
ExpertCompute::~ExpertCompute() = default;

void ExpertCompute::run(int) {}

}  // namespace epccl::perf::moe
