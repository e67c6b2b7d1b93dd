#include "perf/src/sizes.hpp"

#include <charconv>
#include <cmath>

#include "base/settings.hpp"

namespace epccl::perf {

Result<uint64_t> parse_size(const std::string& text) {
  if (text.find('.') == std::string::npos) return settings::parse_bytes(text);
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  const auto unit = settings::parse_bytes("1" + std::string(rest, end));
  if (code != std::errc() || !unit.ok() || std::signbit(number))
    return error(Code::invalid_argument, "\"{}\" is not a size: want 64, 4K, 1.5M, 1G or 1T", text);
  constexpr double most = 1LL << 53;  // numbers up to here are exact
  const double bytes = number * static_cast<double>(*unit);
  if (!(bytes <= most) || bytes != std::floor(bytes))
    return error(Code::invalid_argument, "\"{}\" is not a size: want whole bytes", text);
  return static_cast<uint64_t>(bytes);
}

std::vector<uint64_t> sweep_sizes(const Sweep& sweep, uint64_t least) {
  std::vector<uint64_t> sizes;
  uint64_t size = sweep.first;
  while (size <= sweep.last) {
    sizes.push_back(size);
    uint64_t next = 0;
    const bool overflow = sweep.factor > 1 ? __builtin_mul_overflow(size, sweep.factor, &next)
                                           : __builtin_add_overflow(size, sweep.step, &next);
    if (overflow) break;
    if (size == 0 && sweep.factor > 1) next = least;
    if (next <= size) break;
    size = next;
  }
  return sizes;
}

std::vector<uint64_t> sweep_counts(const Sweep& sweep, uint64_t size_of_one) {
  std::vector<uint64_t> counts;
  for (const uint64_t size : sweep_sizes(sweep, size_of_one)) {
    const uint64_t count = size / size_of_one;
    if (counts.empty() || counts.back() != count) counts.push_back(count);
  }
  return counts;
}

}  // namespace epccl::perf
