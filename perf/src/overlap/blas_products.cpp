#include <cblas.h>
#include <dlfcn.h>

#include <initializer_list>
#include <vector>

#include "perf/src/overlap/blas_products.hpp"

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

class BlasProducts : public MatrixProducts {
 public:
  BlasProducts() { use_one_thread(); }

  Status run(int products) override {
    for (int i = 0; i < products; ++i) {
      const float* const weights = weights_.data() + size_t{inner} * columns * static_cast<size_t>(next_);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, columns, inner, 1, tokens_.data(), inner,
                  weights, columns, 0, results_.data(), columns);
      next_ = (next_ + 1) % experts;
    }
    return {};
  }

 private:
  std::vector<float> tokens_ = std::vector<float>(size_t{rows} * inner, 0.5F);
  std::vector<float> weights_ = std::vector<float>(size_t{experts} * inner * columns, 0.25F);
  std::vector<float> results_ = std::vector<float>(size_t{rows} * columns);
  int next_ = 0;
};

}  // namespace

Status blas_available() {
  return {};
}

std::string blas_library() {
  return EPCCL_BLAS_NAME;
}

Result<std::unique_ptr<MatrixProducts>> make_blas_products() {
  return std::unique_ptr<MatrixProducts>(std::make_unique<BlasProducts>());
}

}  // namespace epccl::perf
