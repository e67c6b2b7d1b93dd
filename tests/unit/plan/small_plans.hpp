// Plans made by hand for the tests of the plan's readers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "plan/plan.hpp"
#include "plan/verifier.hpp"

namespace epccl::plan::testing {

using After = std::vector<uint32_t>;

/// One Builder a rank: `plan[0].send(...)`, then take().
class SmallPlan {
 public:
  /// {2, 1}: ranks 0 and 1 on node 0, rank 2 on node 1.
  explicit SmallPlan(const std::vector<int>& ranks_per_node);
  Builder& operator[](int rank) { return builders_[static_cast<size_t>(rank)]; }
  Plan take();

 private:
  topology::Cluster cluster_;
  std::vector<Builder> builders_;
};

/// RowTables in the making.
class SmallTables {
 public:
  SmallTables() { tables_.sum_begin.push_back(0); }
  /// Where the list begins.
  uint32_t list(std::initializer_list<uint32_t> rows);
  /// Which sum it is.
  uint32_t sum(const std::vector<RowTerm>& terms);
  /// Which count it is.
  uint32_t count(uint32_t rows);
  std::shared_ptr<const RowTables> share() const { return std::make_shared<const RowTables>(tables_); }

 private:
  RowTables tables_;
};

inline constexpr uint8_t plain = RowTerm::unweighted;
inline constexpr uint8_t goes_on = RowTerm::nothing;
inline constexpr uint8_t ends_rank = RowTerm::rank_sum;
inline constexpr uint8_t ends_node = RowTerm::rank_sum | RowTerm::node_sum;

/// Two-stage alltoall of `block` bytes a pair on nodes x locals ranks. Each message goes through one of
/// `slots` pieces of scratch; a piece is used again only after all local ranks have taken their blocks and
/// said so.
Plan two_stage(int nodes, int locals, uint64_t block, int slots);

/// What an alltoall of `block` bytes a pair must do.
std::vector<Transfer> alltoall(int ranks, uint64_t block);

/// With an end at which the ranks of a node wait for each other, so that none is through while others use its buffers.
Plan with_ends(Plan plan);

/// Passes when verify() refuses the plan and the message contains every one of `parts`.
::testing::AssertionResult refused(const Plan& plan, const std::vector<Transfer>& expected,
                                   const std::vector<RowSum>& sums, std::initializer_list<std::string> parts);
::testing::AssertionResult refused(const Plan& plan, const std::vector<Transfer>& expected,
                                   std::initializer_list<std::string> parts);
/// Passes when verify() proves the plan right, with_ends().
::testing::AssertionResult accepted(const Plan& plan, const std::vector<Transfer>& expected,
                                    const std::vector<RowSum>& sums = {});

}  // namespace epccl::plan::testing
