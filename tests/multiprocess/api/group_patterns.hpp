// Who sends to whom in a group: patterns that look complete to one rank alone, drawn at random, the same on all ranks.
#pragma once

#include <cstdint>
#include <random>

namespace epccl::tests {

enum class Pattern { alltoallv, star, ring, pipeline_and_alltoallv, several_each };
inline constexpr uint64_t patterns = 5;

/// Calls `add(from, to)` for each message, in the order in which both ends issue them.
template <typename Add>
void draw_pattern(int ranks, std::mt19937_64& random, const Add& add) {
  const auto pattern = static_cast<Pattern>(random() % patterns);
  const bool has_pipeline = pattern == Pattern::pipeline_and_alltoallv;
  const int root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
  const bool leaves_some_out = random() % 2 == 0;
  for (int a = 0; a < ranks; ++a) {
    if (pattern == Pattern::alltoallv || has_pipeline)
      for (int b = 0; b < ranks; ++b)
        if (!leaves_some_out || random() % 3 != 0) add(a, b);
    if (pattern == Pattern::star) add(root, a), add(a, root);
    if (pattern == Pattern::ring) add(a, (a + 1) % ranks);
    if (has_pipeline && a > 0) add(a - 1, a);
    if (pattern == Pattern::several_each)
      for (int i = 0; i < 4; ++i) add(a, ranks - 1 - a);
  }
}

}  // namespace epccl::tests
