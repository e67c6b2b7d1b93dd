// A graph of a rank's stream, as a CUDA program makes one.
#pragma once

#include "gpu_rank.hpp"

namespace epccl::tests {

/// What `record` does in the rank's stream; can be run until the end of the scope.
class Graph {
 public:
  template <typename Record>
  Graph(const GpuRank& gpu, Record record, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL)
      : gpu_(gpu) {
    EXPECT_EQ(cuStreamBeginCapture(gpu.stream(), mode), CUDA_SUCCESS);
    record();
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(gpu.stream(), &graph), CUDA_SUCCESS);
    if (graph == nullptr) return;
    EXPECT_EQ(cuGraphInstantiateWithFlags(&executable_, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() {
    if (executable_ == nullptr) return;
    EXPECT_EQ(cuStreamSynchronize(gpu_.stream()), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphExecDestroy(executable_), CUDA_SUCCESS);
  }
  void launch() const { EXPECT_EQ(cuGraphLaunch(executable_, gpu_.stream()), CUDA_SUCCESS); }

 private:
  const GpuRank& gpu_;
  CUgraphExec executable_ = nullptr;
};

}  // namespace epccl::tests
