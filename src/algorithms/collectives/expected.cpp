// What the collectives must do, said without regard to how.
#include "algorithms/collectives/collective.hpp"

namespace epccl::algorithms {
namespace {

plan::RowSum sum_of_all(int ranks, int destination, uint64_t source_offset, uint64_t bytes) {
  plan::RowSum sum{destination, 0, bytes, {}};
  for (int rank = 0; rank < ranks; ++rank) sum.terms.push_back({rank, source_offset});
  sum.terms.back().ends = plan::RowTerm::rank_sum | plan::RowTerm::node_sum;
  return sum;
}

}  // namespace

CollectiveResult expected_result(const topology::Cluster& cluster, const CollectiveSpec& call) {
  CollectiveResult result;
  const int ranks = cluster.ranks();
  const uint64_t bytes = call.bytes;
  const auto block = [&](int rank) { return static_cast<uint64_t>(rank) * bytes; };
  for (int rank = 0; rank < ranks; ++rank) {
    plan::InPlace place;
    const bool is_root = rank == call.root;
    switch (call.kind) {
      case Collective::allgather:
        for (int source = 0; source < ranks; ++source)
          result.transfers.push_back({source, 0, rank, block(source), bytes});
        place.input = block(rank);
        break;
      case Collective::gather:
        result.transfers.push_back({rank, 0, call.root, block(rank), bytes});
        if (is_root) place.input = block(rank);
        break;
      case Collective::scatter:
        result.transfers.push_back({call.root, block(rank), rank, 0, bytes});
        if (is_root) place.output = block(rank);
        break;
      case Collective::broadcast:
        result.transfers.push_back({call.root, 0, rank, 0, bytes});
        break;
      case Collective::reduce_scatter:
        result.sums.push_back(sum_of_all(ranks, rank, block(rank), bytes));
        place.output = block(rank);
        break;
      case Collective::allreduce:
        result.sums.push_back(sum_of_all(ranks, rank, 0, bytes));
        break;
      case Collective::reduce:
        if (is_root) result.sums.push_back(sum_of_all(ranks, rank, 0, bytes));
        break;
    }
    result.in_place.push_back(place);
  }
  return result;
}

}  // namespace epccl::algorithms
