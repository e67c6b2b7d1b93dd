// An overlap in a report.
#pragma once

#include <nlohmann/json.hpp>

#include "perf/src/overlap/overlap.hpp"

namespace epccl::perf {

nlohmann::ordered_json overlap_json(const Overlap& overlap);

}  // namespace epccl::perf
