#include "perf/src/overlap/overlap_text.hpp"

#include <fmt/format.h>

#include "perf/src/run_facts.hpp"

namespace epccl::perf {

std::string time_text(double seconds) {
  constexpr double us = 1e6;
  return fixed_width(seconds * us, 9);
}

std::string percent_text(double fraction) {
  return fmt::format("{:.2f}", 100 * fraction);
}

}  // namespace epccl::perf
