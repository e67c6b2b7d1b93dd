#include "perf/src/split.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace epccl::perf {
namespace {

constexpr double us_in_second = 1e6;

}  // namespace

std::string split_line(const Split& split) {
  const auto part = [&](const char* name, double seconds) {
    const double share = split.total > 0 ? 100 * seconds / split.total : 0;
    return fmt::format("{} {:.1f} us ({:.1f} %)", name, seconds * us_in_second, share);
  };
  return fmt::format("#   split of {:.1f} us: {}, {}, {}, {}\n", split.total * us_in_second,
                     part("kernel", split.kernel), part("copy", split.copy), part("signal", split.signal),
                     part("host", split.host()));
}

nlohmann::ordered_json split_json(const Split& split) {
  return {{"time_us", split.total * us_in_second},  {"kernel_us", split.kernel * us_in_second},
          {"copy_us", split.copy * us_in_second},   {"signal_us", split.signal * us_in_second},
          {"host_us", split.host() * us_in_second}, {"iterations", split.iterations}};
}

}  // namespace epccl::perf
