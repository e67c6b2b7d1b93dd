#include "shapes.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace epccl::tests {

using algorithms::Parameters;
using topology::Cluster;

std::mt19937_64 seeded_generator(const char* what) {
  const char* given = std::getenv("EPCCL_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  fmt::print("{}: EPCCL_TEST_SEED={}\n", what, seed);
  return std::mt19937_64(seed);
}

std::string shape_text(const Cluster& cluster) {
  std::string text;
  for (int node = 0; node < cluster.nodes(); ++node)
    text += fmt::format("{}{}", node > 0 ? "+" : "", cluster.local_size(node));
  return text;
}

std::vector<Cluster> small_shapes() {
  std::vector<Cluster> shapes;
  for (const auto& sizes : std::vector<std::vector<int>>{{1},
                                                         {2},
                                                         {8},
                                                         {1, 1},
                                                         {4, 4},
                                                         {3, 5},
                                                         {1, 7},
                                                         {7, 1},
                                                         {2, 2, 2},
                                                         {8, 8, 8, 8},
                                                         {1, 2, 3, 4},
                                                         {5, 1, 1, 5},
                                                         {1, 1, 1, 1, 1}})
    shapes.push_back(Cluster::from_sizes(sizes));
  shapes.push_back(Cluster::from_host_ids({7, 9, 7, 9, 7, 9}).value());
  shapes.push_back(Cluster::from_host_ids({1, 2, 3, 3, 2, 2, 1}).value());
  return shapes;
}

std::vector<uint64_t> random_counts(int ranks, uint64_t most, std::mt19937_64& random) {
  std::vector<uint64_t> counts;
  for (int i = 0; i < ranks * ranks; ++i) counts.push_back(random() % 3 == 0 ? 0 : random() % (most + 1));
  return counts;
}

uint64_t bytes_between(const Cluster& cluster, const algorithms::Exchange& exchange, int source,
                       int destination) {
  uint64_t bytes = 0;
  for (const int s : cluster.members(source))
    for (const int d : cluster.members(destination)) bytes += exchange.bytes(s, d);
  return bytes;
}

bool every_input_read_is_offered(const plan::Plan& plan) {
  std::vector<bool> is_read(plan.ranks.size(), false);
  for (const plan::RankPlan& reader : plan.ranks) {
    const auto reads = [&](const plan::Location& at) {
      if (at.rank >= 0 && at.rank != reader.rank && at.buffer == plan::Buffer::input)
        is_read[static_cast<size_t>(at.rank)] = true;
    };
    for (const plan::Step& step : reader.steps) {
      if (step.kind == plan::Kind::copy) reads(step.source);
      if (step.kind != plan::Kind::reduce) continue;
      for (uint32_t i = 0; i < step.source_count; ++i) reads(reader.row_sources[step.first_source + i].at);
    }
  }
  return std::ranges::all_of(plan.ranks, [&](const plan::RankPlan& rank) {
    return !rank.offered.empty() || !is_read[static_cast<size_t>(rank.rank)];
  });
}

std::vector<Parameters> parameter_choices() {
  std::vector<Parameters> choices;
  for (const int carriers : {0, 1, 2}) {
    Parameters standard;
    standard.carriers = carriers;
    choices.push_back(standard);
    Parameters tiny;  // rings that are reused again and again
    tiny.carriers = carriers;
    tiny.chunk_bytes = 4;
    tiny.eager_limit = 16;
    tiny.scratch_bytes = 8 * 16 + 64;
    choices.push_back(tiny);
    Parameters element = tiny;
    element.chunk_bytes = 1;
    choices.push_back(element);
    for (Parameters pushing : {standard, tiny, element}) {
      pushing.push = true;
      choices.push_back(pushing);
    }
  }
  Parameters indirect;  // nobody may read a peer's input: blocks are staged in rounds
  indirect.direct = false;
  choices.push_back(indirect);
  return choices;
}

std::string text_of(const Parameters& parameters) {
  return fmt::format("chunk {} eager {} scratch {} carriers {} direct {} push {}", parameters.chunk_bytes,
                     parameters.eager_limit, parameters.scratch_bytes, parameters.carriers, parameters.direct,
                     parameters.push);
}

}  // namespace epccl::tests
