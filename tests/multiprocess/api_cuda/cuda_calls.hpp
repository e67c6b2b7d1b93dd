// Ranks with a communicator and a GPU, in several shapes: on one node by copy engines and by way of host memory, on two nodes; and by
// compute cores, where there are kernels.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "../api/ranks.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

struct Shape {
  std::vector<int> ranks_per_node;
  const char* copy_engine;
  const char* stage;
  bool knows_gpu = true;  // when the communicator is made; else `never` is by way of host memory
};
inline void PrintTo(const Shape& shape, std::ostream* out) {
  *out << fmt::format("nodes of {} ranks, copy engine {}, slices of {}{}",
                      fmt::join(shape.ranks_per_node, " and "), shape.copy_engine, shape.stage,
                      shape.knows_gpu ? "" : ", GPU unknown");
}
inline const auto all_shapes =
    ::testing::Values(Shape{{1}, "auto", "8M"}, Shape{{4}, "auto", "8M"}, Shape{{3}, "always", "8M"},
                      Shape{{4}, "never", "8M", false}, Shape{{3}, "never", "1K", false},
                      Shape{{2, 2}, "auto", "2K"}, Shape{{1, 2}, "never", "2K", false});
inline const auto by_cores =
    ::testing::Values(Shape{{1}, "never", "8M"}, Shape{{4}, "never", "8M"}, Shape{{2, 2}, "never", "2K"});

class CudaMemoryCalls : public ::testing::TestWithParam<Shape> {
 protected:
  static void run(const std::function<void(const RankContext&, epcclComm_t, GpuRank&)>& body) {
    run_ranks({GetParam().ranks_per_node,
               {{"EPCCL_STAGE_SIZE", GetParam().stage}, {"EPCCL_COPY_ENGINE", GetParam().copy_engine}},
               {}},
              [&](const RankContext& context) {
                if (!GetParam().knows_gpu) {
                  const Comm comm(context);
                  GpuRank gpu;
                  return body(context, comm, gpu);
                }
                GpuRank gpu;
                const Comm comm(context);
                body(context, comm, gpu);
              });
  }
};

}  // namespace epccl::tests
