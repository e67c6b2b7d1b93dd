#include "small_plans.hpp"

namespace epccl::plan::testing {

SmallPlan::SmallPlan(const std::vector<int>& ranks_per_node)
    : cluster_(topology::Cluster::from_sizes(ranks_per_node)) {
  for (int rank = 0; rank < cluster_.ranks(); ++rank) builders_.emplace_back(rank);
}

Plan SmallPlan::take() {
  Plan plan{cluster_, "small", {}};
  for (Builder& builder : builders_) plan.ranks.push_back(std::move(builder).take());
  return plan;
}

uint32_t SmallTables::list(std::initializer_list<uint32_t> rows) {
  tables_.rows.insert(tables_.rows.end(), rows);
  return static_cast<uint32_t>(tables_.rows.size() - rows.size());
}

uint32_t SmallTables::count(uint32_t rows) {
  tables_.counts.push_back(rows);
  return static_cast<uint32_t>(tables_.counts.size() - 1);
}

uint32_t SmallTables::sum(const std::vector<RowTerm>& terms) {
  tables_.terms.insert(tables_.terms.end(), terms.begin(), terms.end());
  tables_.sum_begin.push_back(static_cast<uint32_t>(tables_.terms.size()));
  return static_cast<uint32_t>(tables_.sum_begin.size() - 2);
}

namespace {

/// Slot 0 counts messages received, slot 1 messages all of whose blocks for this rank were taken.
RankPlan two_stage_rank(const topology::Cluster& cluster, int rank, uint64_t block, int slots) {
  const int nodes = cluster.nodes(), node = cluster.node_of(rank), local = cluster.local_of(rank);
  const std::vector<int>& peers = cluster.members(node);
  const uint64_t message = block * peers.size();
  const auto own = block * static_cast<uint64_t>(rank);
  Builder builder(rank);
  for (const int peer : peers)
    builder.copy(0, {peer, Buffer::input, own}, builder.output(block * static_cast<uint64_t>(peer)), block);
  uint32_t received = Builder::none, taken = Builder::none;
  for (int k = 1; k < nodes; ++k) {
    const auto count = static_cast<uint32_t>(k);
    const int to = (node + k) % nodes, from = (node + nodes - k) % nodes;
    const uint64_t slot = static_cast<uint64_t>((k - 1) % slots) * message;
    builder.send(cluster.rank_at(to, local), 0,
                 builder.input(block * static_cast<uint64_t>(cluster.rank_at(to, 0))), message);
    After credits;
    if (k > slots)
      for (const int peer : peers)
        credits.push_back(builder.wait(1, peer, 1, count - static_cast<uint32_t>(slots)));
    const uint32_t recv =
        builder.recv(cluster.rank_at(from, local), 0, builder.scratch(slot), message, credits);
    received = builder.post(2, 0, count, After{recv, received});
    After copies{taken};
    for (const int peer : peers) {
      const uint32_t wait = builder.wait(2, peer, 0, count);
      const uint64_t source = static_cast<uint64_t>(cluster.rank_at(from, cluster.local_of(peer)));
      copies.push_back(builder.copy(2, {peer, Buffer::scratch, slot + block * static_cast<uint64_t>(local)},
                                    builder.output(block * source), block, After{wait}));
    }
    taken = builder.post(2, 1, count, copies);
  }
  return std::move(builder).take();
}

}  // namespace

Plan two_stage(int nodes, int locals, uint64_t block, int slots) {
  Plan plan{topology::Cluster::uniform(nodes, locals), "two_stage", {}};
  for (int rank = 0; rank < plan.cluster.ranks(); ++rank)
    plan.ranks.push_back(two_stage_rank(plan.cluster, rank, block, slots));
  return plan;
}

std::vector<Transfer> alltoall(int ranks, uint64_t block) {
  std::vector<Transfer> transfers;
  for (int source = 0; source < ranks; ++source)
    for (int destination = 0; destination < ranks; ++destination)
      transfers.push_back({source, block * static_cast<uint64_t>(destination), destination,
                           block * static_cast<uint64_t>(source), block});
  return transfers;
}

Plan with_ends(Plan plan) {
  Step post, wait;
  post.kind = Kind::post;
  wait.kind = Kind::wait;
  post.slot = wait.slot = max_slots - 1;
  post.value = wait.value = 1;
  for (RankPlan& rank : plan.ranks) {
    post.first_dependency = static_cast<uint32_t>(rank.dependencies.size());
    post.dependency_count = static_cast<uint32_t>(rank.steps.size());
    for (uint32_t step = 0; step < post.dependency_count; ++step) rank.dependencies.push_back(step);
    rank.steps.push_back(post);
    for (const int peer : plan.cluster.members(plan.cluster.node_of(rank.rank))) {
      wait.peer = peer;
      if (peer != rank.rank) rank.steps.push_back(wait);
    }
  }
  return plan;
}

::testing::AssertionResult refused(const Plan& plan, const std::vector<Transfer>& expected,
                                   const std::vector<RowSum>& sums,
                                   std::initializer_list<std::string> parts) {
  const Status status = verify(plan, expected, sums, {});
  if (status.ok()) return ::testing::AssertionFailure() << "the plan was accepted";
  for (const std::string& part : parts)
    if (status.message().find(part) == std::string::npos)
      return ::testing::AssertionFailure() << '"' << part << "\" is not in: " << status.message();
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult refused(const Plan& plan, const std::vector<Transfer>& expected,
                                   std::initializer_list<std::string> parts) {
  return refused(plan, expected, std::vector<RowSum>(), parts);
}

::testing::AssertionResult accepted(const Plan& plan, const std::vector<Transfer>& expected,
                                    const std::vector<RowSum>& sums) {
  const Status status = verify(with_ends(plan), expected, sums, {});
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "refused: " << status.message();
}

}  // namespace epccl::plan::testing
