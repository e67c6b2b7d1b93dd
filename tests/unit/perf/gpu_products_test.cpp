// What is said where there is no cuBLAS to compute with.
#include "perf/src/overlap/gpu_products.hpp"

#include <gtest/gtest.h>

namespace epccl::perf {
namespace {

TEST(GpuProducts, AreRefusedByNameWithoutCublas) {
  constexpr const char* names[] = {"libno_such_blas.so.1", "libno_such_blas.so"};
  const auto opened = Cublas::open(names);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::invalid_argument);
  EXPECT_NE(opened.status().message().find(
                "need cuBLAS, and none of libno_such_blas.so.1, libno_such_blas.so can be opened"),
            std::string::npos)
      << opened.status().message();
}

TEST(GpuProducts, AreRefusedByALibraryThatIsSomethingElse) {
  constexpr const char* names[] = {"libc.so.6"};
  const auto opened = Cublas::open(names);
  ASSERT_FALSE(opened.ok());
  EXPECT_TRUE(opened.status().message().find("libc.so.6 has no cublasCreate_v2") != std::string::npos ||
              opened.status().message().find("no CUDA driver") != std::string::npos)
      << opened.status().message();
}

}  // namespace
}  // namespace epccl::perf
