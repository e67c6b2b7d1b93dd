// Sizes, counts and factors are nccl-tests'.
#include "perf/src/operation.hpp"

#include <gtest/gtest.h>

namespace epccl::perf {
namespace {

constexpr Operation all[] = {Operation::alltoall,       Operation::alltoallv, Operation::allgather,
                             Operation::reduce_scatter, Operation::allreduce, Operation::broadcast,
                             Operation::reduce,         Operation::gather,    Operation::scatter,
                             Operation::sendrecv};

TEST(Operation, HasNamesWithAndWithoutUnderscores) {
  for (const Operation operation : all) EXPECT_EQ(*parse_operation(to_string(operation)), operation);
  EXPECT_EQ(*parse_operation("all_reduce"), Operation::allreduce);
  EXPECT_EQ(*parse_operation("reducescatter"), Operation::reduce_scatter);
  EXPECT_FALSE(parse_operation("allreduces").ok());
  EXPECT_FALSE(parse_operation("").ok());
}

TEST(Operation, FactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Operation::allreduce, 8), 2 * 7.0 / 8);
  for (const Operation operation : {Operation::alltoall, Operation::alltoallv, Operation::allgather,
                                    Operation::reduce_scatter, Operation::gather, Operation::scatter})
    EXPECT_DOUBLE_EQ(bus_factor(operation, 8), 7.0 / 8) << to_string(operation);
  for (const Operation operation : {Operation::broadcast, Operation::reduce, Operation::sendrecv})
    EXPECT_DOUBLE_EQ(bus_factor(operation, 8), 1) << to_string(operation);
}

TEST(Operation, SizesOfPartsAreThoseOfAllRanks) {
  EXPECT_EQ(size_of_count(Operation::allgather, 31, 8), 248u);
  EXPECT_EQ(size_of_count(Operation::allreduce, 255, 8), 255u);
}

TEST(Operation, PlacesInPlaceAreThoseOfNccl) {
  const int rank = 2, ranks = 4, root = 2;
  const uint64_t count = 10;
  const Extent gathered = extent_of(Operation::allgather, rank, ranks, root, count);
  EXPECT_EQ(gathered.input, 10u);
  EXPECT_EQ(gathered.output, 40u);
  EXPECT_EQ(gathered.input_in_place, 20u);
  EXPECT_EQ(gathered.whole(), 40u);
  const Extent scattered = extent_of(Operation::reduce_scatter, rank, ranks, root, count);
  EXPECT_EQ(scattered.input, 40u);
  EXPECT_EQ(scattered.output, 10u);
  EXPECT_EQ(scattered.output_in_place, 20u);
  EXPECT_EQ(scattered.whole(), 40u);
}

TEST(Operation, OnlyTheRootHasWhatIsTheRoots) {
  const uint64_t count = 10;
  EXPECT_EQ(extent_of(Operation::broadcast, 0, 4, 1, count).input, 0u);
  EXPECT_EQ(extent_of(Operation::broadcast, 1, 4, 1, count).input, 10u);
  EXPECT_EQ(extent_of(Operation::reduce, 0, 4, 1, count).output, 0u);
  EXPECT_EQ(extent_of(Operation::gather, 0, 4, 1, count).output, 0u);
  EXPECT_EQ(extent_of(Operation::gather, 1, 4, 1, count).output, 40u);
  EXPECT_EQ(extent_of(Operation::scatter, 0, 4, 1, count).input, 0u);
  EXPECT_EQ(extent_of(Operation::scatter, 1, 4, 1, count).input, 40u);
}

TEST(Operation, LinksCarryAtLeastWhatHasToCross) {
  const std::vector<int> even = {0, 0, 1, 1}, uneven = {0, 0, 0, 1}, alternating = {0, 1, 0, 1}, one = {0, 0};
  EXPECT_EQ(least_link_elements(Operation::allgather, -1, 10, even), 20u);
  EXPECT_EQ(least_link_elements(Operation::allgather, -1, 10, uneven), 30u)
      << "three parts reach the single rank";
  EXPECT_EQ(least_link_elements(Operation::gather, 0, 10, uneven), 10u);
  EXPECT_EQ(least_link_elements(Operation::scatter, 3, 10, uneven), 30u);
  EXPECT_EQ(least_link_elements(Operation::allreduce, -1, 10, even), 10u);
  EXPECT_EQ(least_link_elements(Operation::broadcast, 0, 10, even), 10u);
  EXPECT_EQ(least_link_elements(Operation::sendrecv, -1, 10, even), 10u);
  EXPECT_EQ(least_link_elements(Operation::sendrecv, -1, 10, alternating), 20u);
  EXPECT_EQ(least_link_elements(Operation::allreduce, -1, 10, one), 0u);
}

}  // namespace
}  // namespace epccl::perf
