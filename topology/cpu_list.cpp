#include "topology/cpu_list.hpp"

#include "base/core_mask.hpp"
#include "topology/parse_number.hpp"

namespace epccl::topology {
namespace {

constexpr int bits_per_word = 32;

}  // namespace

CpuList allowed_cpus() {
  return allowed_cores();
}

std::string format_cpu_list(const CpuList& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += last == i ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[last]);
    i = last + 1;
  }
  return text;
}

Result<CpuList> parse_cpu_mask(std::string_view text) {
  if (text.size() > max_cpus / bits_per_word * 9)
    return error(Code::invalid_argument, "a CPU mask of {} characters names more than {} CPUs", text.size(),
                 max_cpus);
  CpuList cpus;
  for (int base = 0; !text.empty(); base += bits_per_word) {
    const size_t comma = text.rfind(',');
    const std::string_view word = comma == std::string_view::npos ? text : text.substr(comma + 1);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(0, comma);
    const auto bits = parse_hex(word, UINT32_MAX);
    if (!bits || base + bits_per_word > max_cpus)
      return error(Code::invalid_argument, "\"{}\" is not a 32-bit word of a CPU mask", word);
    for (int bit = 0; bit < bits_per_word; ++bit)
      if (*bits >> bit & 1) cpus.push_back(base + bit);
  }
  return cpus;
}

}  // namespace epccl::topology
