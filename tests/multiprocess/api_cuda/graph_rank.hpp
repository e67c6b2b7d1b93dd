// Ranks with graphs of their streams, as CUDA programs make them.
#pragma once

#include <fmt/format.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "../api/ranks.hpp"
#include "device/kernels/launch.hpp"
#include "gpu_rank.hpp"

namespace epccl::tests {

enum class RanksAre { processes, threads };

/// Where the ranks of a process wait for each other; null: this thread is none of several.
inline thread_local std::barrier<>* ranks_of_this_process = nullptr;

/// run_ranks() on one node; as threads, in a process of their own.
inline void run_gpu_ranks(RanksAre ranks_are, int ranks,
                          const std::vector<std::pair<std::string, std::string>>& environment,
                          const std::function<void(const RankContext&)>& body) {
  if (ranks_are == RanksAre::processes) return run_ranks({{ranks}, environment, {}}, body);
  run_ranks({{1}, environment, {}}, [&](const RankContext& process) {
    std::barrier<> all(ranks);
    keeps_memory() = true;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        ranks_of_this_process = &all;
        body({rank, ranks, process.id, process.meeting});
        all.arrive_and_drop();  // a rank that has failed keeps nobody waiting
      });
    for (std::thread& thread : threads) thread.join();
  });
}

/// Captures a rank's stream until the end of the scope, or of end().
class Capture {
 public:
  Capture(const GpuRank& gpu, CUstreamCaptureMode mode) : gpu_(gpu) {
    EXPECT_EQ(cuStreamBeginCapture(gpu.stream(), mode), CUDA_SUCCESS);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    if (!is_over_) cuGraphDestroy(end());
  }
  CUgraph end() {
    is_over_ = true;
    CUgraph graph = nullptr;
    EXPECT_EQ(cuStreamEndCapture(gpu_.stream(), &graph), CUDA_SUCCESS);
    return graph;
  }

 private:
  const GpuRank& gpu_;
  bool is_over_ = false;
};

/// What was captured; can be run until the end of the scope. Ranks of one process all make it: none runs it before each has, since a
/// driver may make a graph wait until kernels are through, and those of a graph poll for other ranks.
class Graph {
 public:
  Graph(const GpuRank& gpu, Capture& capture) : gpu_(gpu) { make(capture); }
  template <typename Record>
  Graph(const GpuRank& gpu, Record record, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
      : gpu_(gpu) {
    Capture capture(gpu, mode);
    record();
    make(capture);
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
  void make(Capture& capture) {
    CUgraph graph = capture.end();
    if (graph == nullptr) return;
    EXPECT_EQ(cuGraphInstantiateWithFlags(&executable_, graph, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
    EXPECT_EQ(cuGraphUpload(executable_, gpu_.stream()), CUDA_SUCCESS);
    gpu_.wait();
    if (ranks_of_this_process != nullptr) ranks_of_this_process->arrive_and_wait();
  }

  const GpuRank& gpu_;
  CUgraphExec executable_ = nullptr;
};

/// Until the communicator has failed; of a replay that timed out, until it is known what it waited for.
inline epcclResult_t wait_for_failure(epcclComm_t comm) {
  epcclResult_t state = epcclSuccess;
  const auto is_all = [&] {
    const std::string text = epcclGetLastError(comm);
    return state != epcclSuccess && text != "timeout of a replay of a captured call";
  };
  do {
    EXPECT_EQ(epcclCommGetAsyncError(comm, &state), epcclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (!is_all());
  return state;
}

inline int32_t number_of(int source, int destination, size_t index, int round) {
  return source * 100'000'000 + destination * 10'000'000 + round * 1'000'000 + static_cast<int32_t>(index);
}

/// An alltoall of a rank: fills its input, is captured, is looked at.
class Exchanged {
 public:
  Exchanged(const RankContext& context, const GpuRank& gpu, size_t count)
      : rank_(context.rank),
        ranks_(context.ranks),
        count_(count),
        input_(gpu, count * static_cast<size_t>(context.ranks)),
        output_(gpu, count * static_cast<size_t>(context.ranks)) {}

  epcclResult_t call(epcclComm_t comm, epcclStream_t stream) const {
    return epcclAlltoall(input_.data(), output_.data(), count_, epcclInt32, comm, stream);
  }
  void fill(int round) {
    values_.clear();
    for (int peer = 0; peer < ranks_; ++peer)
      for (size_t i = 0; i < count_; ++i) values_.push_back(number_of(rank_, peer, i, round));
    input_.put(values_);
  }
  void expect(int round) const {
    const std::vector<int32_t> got = output_.get();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(got[i], number_of(static_cast<int>(i / count_), rank_, i % count_, round))
          << "round " << round << ", element " << i;
  }

 private:
  const int rank_, ranks_;
  const size_t count_;
  GpuArray<int32_t> input_, output_;
  std::vector<int32_t> values_;
};

/// Another communicator of the same ranks.
class Twin {
 public:
  explicit Twin(epcclComm_t parent) {
    EXPECT_EQ(epcclCommSplit(parent, 0, 0, &comm_, nullptr), epcclSuccess) << epcclGetLastError(nullptr);
  }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;
  ~Twin() { EXPECT_EQ(epcclCommDestroy(comm_), epcclSuccess); }
  operator epcclComm_t() const { return comm_; }  // NOLINT: reads like the handle it is

 private:
  epcclComm_t comm_ = nullptr;
};

inline void expect_captured(epcclResult_t result) {
  EXPECT_EQ(result, epcclSuccess) << epcclGetLastError(nullptr);
}

inline bool graphs_can_be_made() {
  return !device::kernels::bytes_of(device::kernels::Image::signals).empty();
}

class CudaGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!graphs_can_be_made()) GTEST_SKIP() << "built without CUDA kernels";
  }
};

}  // namespace epccl::tests
