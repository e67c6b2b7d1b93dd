#include "perf/src/wire.hpp"

#include <algorithm>

namespace epccl::perf {

uint64_t busiest_link_bytes(const CountMatrix& counts, uint64_t bytes_per_element,
                            const std::vector<int>& node_of) {
  if (node_of.empty()) return 0;
  const auto nodes = static_cast<size_t>(*std::max_element(node_of.begin(), node_of.end())) + 1;
  std::vector<uint64_t> out(nodes), in(nodes);
  for (int s = 0; s < counts.ranks(); ++s) {
    for (int d = 0; d < counts.ranks(); ++d) {
      const auto from = static_cast<size_t>(node_of[static_cast<size_t>(s)]);
      const auto to = static_cast<size_t>(node_of[static_cast<size_t>(d)]);
      if (from == to) continue;
      out[from] += counts.at(s, d);
      in[to] += counts.at(s, d);
    }
  }
  return bytes_per_element *
         std::max(*std::max_element(out.begin(), out.end()), *std::max_element(in.begin(), in.end()));
}

double ideal_seconds(uint64_t bytes, double rate) {
  return static_cast<double>(bytes) * 8 / (rate * payload_share);
}

}  // namespace epccl::perf
