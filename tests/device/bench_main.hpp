// What a benchmark of ranks that share a GPU is asked for, and its exit code.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench_report.hpp"
#include "measured.hpp"

namespace epccl::device::test {

inline constexpr uint64_t mebibyte = uint64_t{1} << 20;

struct BenchArguments {
  const char* file = nullptr;
  std::vector<uint64_t> sizes;  // bytes a rank, at least one; each call's fixed cost shows in the difference
  int ranks = most_ranks;
  bool only_processes = false, only_threads = false, only_ways = false;
};

/// [FILE] [MEGABYTES A RANK,...] [RANKS] [processes|threads|ways ...]
inline BenchArguments bench_arguments(int argc, char** argv) {
  BenchArguments arguments;
  if (argc > 1) arguments.file = argv[1];
  for (const char* text = argc > 2 ? argv[2] : "64";;) {
    char* end = nullptr;
    arguments.sizes.push_back(std::max(std::strtoull(text, &end, 10), 1ULL) * mebibyte);
    if (*end != ',') break;
    text = end + 1;
  }
  if (argc > 3) arguments.ranks = std::clamp(std::atoi(argv[3]), 2, most_ranks);
  const auto asks_for = [&](const char* word) {
    return std::any_of(argv + std::min(argc, 4), argv + argc,
                       [word](const char* given) { return std::strcmp(given, word) == 0; });
  };
  arguments.only_processes = asks_for(text_of(As::processes));
  arguments.only_threads = asks_for(text_of(As::threads));
  arguments.only_ways = asks_for("ways");
  return arguments;
}

/// Whether the GPU has room for two buffers of each rank, and for what each process takes besides.
inline bool has_room(int ranks, uint64_t bytes) {
  const uint64_t needed = static_cast<uint64_t>(ranks) * (2 * bytes + 512 * mebibyte);
  return measured<bool>(As::threads, 1, [needed](Rank& rank, bool& out) {
    auto memory = rank.device().allocate(MemoryKind::plain, needed);
    out = memory.ok();
    if (out) must(rank.device().free(*memory));
  });
}

/// The program `name`: `measure` fills the report.
template <typename Measure>
int bench_main(const char* name, int argc, char** argv, const Measure& measure) {
  if (const int code = ask_for_gpu(); code != 0) return code;
  try {
    const BenchArguments arguments = bench_arguments(argc, argv);
    BenchReport report(arguments.file);
    setenv("EPCCL_CUDA_FIRST_CALLS", "0", 0);  // what is measured is what comes after them
    measure(arguments, report);
    return report.has_failures() ? 1 : 0;
  } catch (const std::exception& failure) {
    fmt::print(stderr, "{}: {}\n", name, failure.what());
    return 1;
  }
}

}  // namespace epccl::device::test
