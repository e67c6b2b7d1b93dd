#include <cblas.h>
#include <dlfcn.h>

#include <initializer_list>
#include <vector>

#include "perf/src/overlap/matrix_products.hpp"

namespace epccl::perf {
namespace {

// About a quarter of a millisecond, with weights that fit into no core's own cache.
constexpr int rows = 64, inner = 512, columns = 256, experts = 8;

/// The threads of a library would take the cores of other ranks, and some spin there.
void use_one_thread() {
  for (const char* name : {"openblas_set_num_threads", "MKL_Set_Num_Threads"}) {
    if (auto* const set = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, name))) set(1);
  }
  if (auto* const set = reinterpret_cast<void (*)(long)>(dlsym(RTLD_DEFAULT, "bli_thread_set_num_threads")))
    set(1);
}

}  // namespace

struct MatrixProducts::Matrices {
  std::vector<float> tokens = std::vector<float>(size_t{rows} * inner, 0.5F);
  std::vector<float> weights = std::vector<float>(size_t{experts} * inner * columns, 0.25F);
  std::vector<float> results = std::vector<float>(size_t{rows} * columns);
  int next = 0;
};

Status MatrixProducts::available() {
  return {};
}

std::string MatrixProducts::library() {
  return EPCCL_BLAS_NAME;
}

MatrixProducts::MatrixProducts() : matrices_(std::make_unique<Matrices>()) {
  use_one_thread();
}

MatrixProducts::~MatrixProducts() = default;

void MatrixProducts::run(int products) {
  Matrices& m = *matrices_;
  for (int i = 0; i < products; ++i) {
    const float* const weights = m.weights.data() + size_t{inner} * columns * static_cast<size_t>(m.next);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1, m.tokens.data(), inner,
                weights, columns, 0, m.results.data(), columns);
    m.next = (m.next + 1) % experts;
  }
}

}  // namespace epccl::perf
