// The exchange of counts before an alltoallv.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "algorithms/alltoall/counts.hpp"
#include "plan/verifier.hpp"
#include "shapes.hpp"

namespace epccl::algorithms {
namespace {

using topology::Cluster;

TEST(Counts, ReachEveryRankOfTheNode) {
  for (const Cluster& cluster : tests::small_shapes()) {
    SCOPED_TRACE(tests::shape_text(cluster));
    plan::Plan everywhere{cluster, "counts", {}};
    for (int rank = 0; rank < cluster.ranks(); ++rank) {
      everywhere.ranks.push_back(build_counts_exchange(cluster, rank));
      EXPECT_LE(everywhere.ranks.back().scratch_bytes, counts_scratch_bytes(cluster));
      EXPECT_EQ(everywhere.ranks.back().output_bytes, counts_output_bytes(cluster, cluster.node_of(rank)));
      EXPECT_EQ(everywhere.ranks.back().input_bytes, counts_input_bytes(cluster));
    }
    const auto transfers = counts_transfers(cluster);
    plan::VerifyReport report;
    const Status status = plan::verify(everywhere, transfers, &report);
    EXPECT_TRUE(status.ok()) << status.message();
    const auto nodes = static_cast<uint64_t>(cluster.nodes());
    EXPECT_EQ(report.links.messages, nodes * (nodes - 1));
  }
}

// Moves entries as `transfers` says, then reads them as the runtime does.
TEST(Counts, AreReadBackAsTheyWere) {
  auto random = tests::seeded_generator("counts");
  for (const Cluster& cluster : tests::small_shapes()) {
    const int ranks = cluster.ranks();
    const auto bytes = tests::random_counts(ranks, 1000, random);
    std::vector<std::vector<CountEntry>> inputs;
    uint64_t total = 0;
    for (int source = 0; source < ranks; ++source) {
      std::vector<CountEntry> row(static_cast<size_t>(ranks) + 1);
      for (int destination = 0; destination < ranks; ++destination) {
        const uint64_t count = bytes[static_cast<size_t>(source * ranks + destination)];
        row[static_cast<size_t>(destination)] = {count, random() % 1000, random() % 1000};
        row.back().bytes += count;
      }
      total += row.back().bytes;
      inputs.push_back(std::move(row));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const int node = cluster.node_of(rank);
      std::vector<CountEntry> output(counts_output_bytes(cluster, node) / sizeof(CountEntry));
      for (const auto& transfer : counts_transfers(cluster))
        if (transfer.destination_rank == rank)
          std::copy_n(
              inputs[static_cast<size_t>(transfer.source_rank)].begin() +
                  static_cast<ptrdiff_t>(transfer.source_offset / sizeof(CountEntry)),
              transfer.bytes / sizeof(CountEntry),
              output.begin() + static_cast<ptrdiff_t>(transfer.destination_offset / sizeof(CountEntry)));
      const auto counts = read_counts(cluster, node, output.data());
      EXPECT_EQ(counts.total_bytes, total);
      for (const int local : cluster.members(node))
        for (int peer = 0; peer < ranks; ++peer) {
          EXPECT_EQ(counts.exchange.bytes(local, peer), bytes[static_cast<size_t>(local * ranks + peer)]);
          EXPECT_EQ(counts.exchange.bytes(peer, local), bytes[static_cast<size_t>(peer * ranks + local)]);
          EXPECT_EQ(counts.exchange.input_offset(local, peer),
                    inputs[static_cast<size_t>(local)][static_cast<size_t>(peer)].input_offset);
          EXPECT_EQ(counts.exchange.output_offset(local, peer),
                    inputs[static_cast<size_t>(local)][static_cast<size_t>(peer)].output_offset);
        }
    }
  }
}

}  // namespace
}  // namespace epccl::algorithms
