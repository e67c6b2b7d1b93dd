#include "perf/src/overlap/gpu_products.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>
#include <vector>

#include "base/settings.hpp"

namespace epccl::perf {
namespace {

// Weights fit into no cache.
constexpr size_t least_weights = 64 << 20, most_weight_matrices = 8;

// Of cublas_api.h and library_types.h.
constexpr int no_transpose = 0, bfloat16 = 14, compute_in_float32 = 68, any_algorithm = -1;
constexpr unsigned non_blocking = 1;  // CU_STREAM_NON_BLOCKING: the calls are made in the NULL stream

template <typename Function>
Status find(void* library, const std::string& name, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr ? Status{} : error(Code::device_error, "{} has no {}", name, symbol);
}

Status check(const char* what, int code) {
  return code == 0 ? Status{} : error(Code::device_error, "--overlap: {} returned {}", what, code);
}

/// bfloat16, of both signs, 0.5 to almost 1: numbers that are all alike take a GPU less power, so its clock stays higher.
std::vector<uint16_t> random_numbers(size_t count) {
  constexpr uint16_t half = 0x3f00, sign_and_mantissa = 0x807f;
  std::minstd_rand random;
  std::vector<uint16_t> numbers(count);
  for (uint16_t& number : numbers)
    number = static_cast<uint16_t>(half | ((random() >> 8) & sign_and_mantissa));
  return numbers;
}

class GpuProducts : public MatrixProducts {
 public:
  GpuProducts(const Cublas& cublas, int size)
      : cublas_(cublas),
        size_(size),
        bytes_(static_cast<size_t>(size) * static_cast<size_t>(size) * sizeof(uint16_t)),
        weights_(static_cast<int>(
            std::clamp((least_weights + bytes_ - 1) / bytes_, size_t{2}, most_weight_matrices))) {}
  ~GpuProducts() override {
    if (handle_ != nullptr) cublas_.destroy(handle_);
    if (stream_ != nullptr) cublas_.destroy_stream(stream_);
    if (matrices_ != 0) cublas_.free(matrices_);
  }

  Status prepare() {
    EPCCL_TRY(check("cuStreamCreate", cublas_.create_stream(&stream_, non_blocking)));
    EPCCL_TRY(check("cublasCreate", cublas_.create(&handle_)));
    EPCCL_TRY(check("cublasSetStream", cublas_.set_stream(handle_, stream_)));
    EPCCL_TRY(check("cuMemAlloc", cublas_.allocate(&matrices_, static_cast<size_t>(weights_ + 2) * bytes_)));
    const std::vector<uint16_t> numbers = random_numbers(bytes_ / sizeof(uint16_t));
    for (int matrix = 0; matrix <= weights_; ++matrix)
      EPCCL_TRY(
          check("cuMemcpyAsync", cublas_.copy(matrices_ + static_cast<size_t>(matrix) * bytes_,
                                              reinterpret_cast<uint64_t>(numbers.data()), bytes_, stream_)));
    return check("cuStreamSynchronize", cublas_.synchronize(stream_));
  }

  Status run(int products) override {
    constexpr float one = 1, zero = 0;
    const auto at = [&](int matrix) {
      return reinterpret_cast<void*>(matrices_ + static_cast<size_t>(matrix) * bytes_);  // NOLINT: of the GPU
    };
    for (int i = 0; i < products; ++i) {
      EPCCL_TRY(check("cublasGemmEx",
                      cublas_.gemm(handle_, no_transpose, no_transpose, size_, size_, size_, &one, at(0),
                                   bfloat16, size_, at(1 + next_), bfloat16, size_, &zero, at(weights_ + 1),
                                   bfloat16, size_, compute_in_float32, any_algorithm)));
      next_ = (next_ + 1) % weights_;
    }
    return check("cuStreamSynchronize", cublas_.synchronize(stream_));
  }

 private:
  const Cublas& cublas_;
  const int size_;
  const size_t bytes_;  // of a matrix
  const int weights_;   // matrices
  void *handle_ = nullptr, *stream_ = nullptr;
  uint64_t matrices_ = 0;  // tokens, weights, result
  int next_ = 0;
};

}  // namespace

Result<std::unique_ptr<Cublas>> Cublas::open(std::span<const char* const> libraries) {
  auto found = std::make_unique<Cublas>();
  void* library = nullptr;
  for (const char* name : libraries) {
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    found->name_ = name;
    if (library != nullptr) break;
  }
  if (library == nullptr)
    return error(
        Code::invalid_argument,
        "--overlap with --device cuda: its matrix products need cuBLAS, and none of {} can be opened",
        fmt::join(libraries, ", "));
  std::string name = settings::get("EPCCL_CUDA_LIB");
  if (name.empty()) name = "libcuda.so.1";
  void* const driver = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (driver == nullptr) return error(Code::device_error, "no CUDA driver: {}", dlerror());
  EPCCL_TRY(find(library, found->name_, "cublasCreate_v2", found->create));
  EPCCL_TRY(find(library, found->name_, "cublasDestroy_v2", found->destroy));
  EPCCL_TRY(find(library, found->name_, "cublasSetStream_v2", found->set_stream));
  EPCCL_TRY(find(library, found->name_, "cublasGemmEx", found->gemm));
  EPCCL_TRY(find(driver, name, "cuMemAlloc_v2", found->allocate));
  EPCCL_TRY(find(driver, name, "cuMemFree_v2", found->free));
  EPCCL_TRY(find(driver, name, "cuMemcpyAsync", found->copy));
  EPCCL_TRY(find(driver, name, "cuStreamCreate", found->create_stream));
  EPCCL_TRY(find(driver, name, "cuStreamDestroy_v2", found->destroy_stream));
  EPCCL_TRY(find(driver, name, "cuStreamSynchronize", found->synchronize));
  return found;
}

const Result<std::unique_ptr<Cublas>>& Cublas::load() {
  static const Result<std::unique_ptr<Cublas>> found = [] {
    constexpr const char* names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    return open(names);
  }();
  return found;
}

Result<std::unique_ptr<MatrixProducts>> make_gpu_products(int size) {
  const auto& cublas = Cublas::load();
  if (!cublas.ok()) return Status(cublas.status());
  auto made = std::make_unique<GpuProducts>(**cublas, size);
  EPCCL_TRY(made->prepare());
  return std::unique_ptr<MatrixProducts>(std::move(made));
}

}  // namespace epccl::perf
