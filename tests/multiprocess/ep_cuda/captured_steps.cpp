#include "captured_steps.hpp"

#include <memory>
#include <random>
#include <vector>

namespace epccl::tests {

Problem small_problem(int ranks, epcclEpLayout_t layout) {
  Problem problem;
  problem.ranks_per_node = {ranks};
  problem.layout = layout;
  problem.experts = static_cast<uint32_t>(2 * ranks);
  problem.k = 3;
  problem.max_tokens = 9;
  problem.hidden = 200;
  problem.capacity = problem.by_expert() ? 4 : 0;
  problem.tokens.assign(static_cast<size_t>(ranks), problem.max_tokens);
  for (uint32_t expert = 0; expert < problem.experts; ++expert)
    problem.owner.push_back(static_cast<int>(expert) / 2);
  return problem;
}

namespace {

Problem random_problem_to_capture(int ranks, std::mt19937_64& random) {
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  Problem problem;
  problem.ranks_per_node = {ranks};
  problem.layout = below(2) == 0 ? EPCCL_EP_LAYOUT_RANK_MAJOR : EPCCL_EP_LAYOUT_EXPERT_MAJOR;
  problem.type = std::vector{epcclFloat32, epcclBfloat16, epcclFloat16}[below(3)];
  problem.experts = 1 + below(8);
  problem.k = 1 + below(4);
  problem.max_tokens = 1 + below(below(3) == 0 ? 70 : 12);
  problem.hidden = 1 + below(below(2) == 0 ? 9 : 300);
  if (problem.by_expert()) {
    problem.capacity = 1 + below(12);
    problem.alignment = 1 + below(4);
  }
  problem.strategy = std::vector{EPCCL_EP_STRATEGY_AUTO, EPCCL_EP_STRATEGY_FLAT, EPCCL_EP_STRATEGY_GATHER,
                                 EPCCL_EP_STRATEGY_DEDUP}[below(4)];
  problem.tokens.assign(static_cast<size_t>(ranks), problem.max_tokens);
  for (uint32_t expert = 0; expert < problem.experts; ++expert)
    problem.owner.push_back(static_cast<int>(below(static_cast<uint32_t>(ranks))));
  return problem;
}

/// A step as a graph, or as several.
class GraphsOfStep {
 public:
  GraphsOfStep(const GpuRank& gpu, StaticStep& step, epcclEpHandle_t handle, uint64_t parts) {
    using Calls = std::vector<void (StaticStep::*)(epcclEpHandle_t)>;
    const Calls calls{&StaticStep::update, &StaticStep::dispatch, &StaticStep::combine};
    Calls together;
    for (size_t i = 0; i < calls.size(); ++i) {
      together.push_back(calls[i]);
      if (i + 1 < calls.size() && (parts >> i & 1) != 0) continue;
      graphs_.push_back(std::make_unique<Graph>(gpu, [&] {
        for (const auto call : together) (step.*call)(handle);
      }));
      together.clear();
    }
  }
  void launch() const {
    for (const auto& graph : graphs_) graph->launch();
  }

 private:
  std::vector<std::unique_ptr<Graph>> graphs_;
};

void replay_random_steps_on(const RankContext& context, epcclComm_t comm, GpuRank& gpu, uint64_t seed,
                            GpuMemoryKind kind, int problems) {
  std::mt19937_64 random(seed);
  for (int i = 0; i < problems; ++i) {
    const Problem problem = random_problem_to_capture(context.ranks, random);
    const StepHandle replayed(problem, comm), called(problem, comm);
    std::vector<std::unique_ptr<StaticStep>> steps, calls;
    std::vector<std::unique_ptr<GraphsOfStep>> graphs;
    for (int each = 0; each < 2; ++each) {
      uint32_t mine = 0;
      for (int rank = 0; rank < context.ranks; ++rank)
        if (const auto tokens = static_cast<uint32_t>(random() % (problem.max_tokens + 1));
            rank == context.rank)
          mine = tokens;
      steps.push_back(std::make_unique<StaticStep>(context, gpu, problem, mine, kind));
      calls.push_back(std::make_unique<StaticStep>(context, gpu, problem, mine));
      graphs.push_back(std::make_unique<GraphsOfStep>(gpu, *steps.back(), replayed, random()));
    }
    for (int round = 0; round < 4; ++round) {
      const size_t which = random() % 2;
      const uint64_t data = random() % 1'000'000;
      steps[which]->fill(data);
      calls[which]->fill(data);
      graphs[which]->launch();
      calls[which]->all(called);
      ASSERT_EQ(steps[which]->difference(*calls[which]), "")
          << problem.text() << ", problem " << i << ", round " << round;
    }
  }
}

}  // namespace

void replay_random_steps(const RankContext& context, uint64_t seed, GpuMemoryKind kind, int problems,
                         bool knows_gpu) {
  if (knows_gpu) {
    GpuRank gpu;
    const Comm comm(context);
    replay_random_steps_on(context, comm, gpu, seed, kind, problems);
  } else {
    const Comm comm(context);
    GpuRank gpu;
    replay_random_steps_on(context, comm, gpu, seed, kind, problems);
  }
}

}  // namespace epccl::tests
