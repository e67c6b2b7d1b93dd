// Matrix products by the BLAS that this program was built with, if any (blas_products.cpp, blas_absent.cpp).
#pragma once

#include "perf/src/overlap/matrix_products.hpp"

namespace epccl::perf {

/// Error: this build has none.
Status blas_available();
/// Empty: none.
std::string blas_library();
Result<std::unique_ptr<MatrixProducts>> make_blas_products();

}  // namespace epccl::perf
