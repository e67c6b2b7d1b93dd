// --write-matrix: a routing's counts as alltoallv's --pattern file:<path> reads them.
#pragma once

#include <string>

#include "base/status.hpp"
#include "perf/src/pattern.hpp"

namespace epccl::perf::moe {

/// A line of counts, separated by spaces, for every source.
std::string text_of(const CountMatrix& matrix);
Status write_counts(const CountMatrix& matrix, const std::string& path);

}  // namespace epccl::perf::moe
