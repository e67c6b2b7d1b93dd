#include "perf/src/complaints.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace epccl::perf {

void Complaints::add(const BlockCheck& found, const std::string& what, uint64_t offset, uint64_t elements) {
  if (wrong_ == 0 && found.wrong > 0) {
    fmt::print(stderr,
               "epccl-perf: rank {}: {}: wrong {}: {} of its {} elements, first element {} (byte {} of the "
               "output): expected {}, found {}{}\n",
               rank_, title_, what, found.wrong, elements, found.first, (offset + found.first) * type_.bytes,
               found.expected, found.found, found.unwritten ? " (never written)" : "");
  }
  wrong_ += found.wrong;
}

void Complaints::add_guard(std::span<const std::byte> guard) {
  const uint64_t behind = count_unpoisoned(guard);
  if (behind == 0) return;
  fmt::print(stderr, "epccl-perf: rank {}: {}: {} of the {} bytes behind the output were written\n", rank_,
             title_, behind, guard.size());
  wrong_ += (behind + type_.bytes - 1) / type_.bytes;
}

}  // namespace epccl::perf
