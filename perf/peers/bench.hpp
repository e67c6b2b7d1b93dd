// How every peer is measured: the same data, the same iterations, the same output, whatever library does the
// exchange.
//
//   PROGRAM LABEL OPERATIONS MIN MAX SECONDS CALLS     sizes MIN, 4 MIN, ... MAX bytes, about SECONDS for each
//
// Operations, comma separated, all out of place on plain memory; a size is that of a rank pair, or (moe) of a
// row:
//   alltoall, alltoallv   the same number of bytes for every rank pair, oneself included
//   alltoallv_zipf        as much per sender, but split over destinations in proportion 1/(1+d)^0.8: rank 0
//                         is the hottest
//   twostage              alltoall's exchange, made by hand from two alltoalls (where the peer offers it)
//   allgather, reduce_scatter, allreduce, broadcast, reduce, gather, scatter
//                         of floats (sums), root 0; here a size is that of the whole buffer, as nccl-tests has it. broadcast
//                         is in place
//   moe:MATRIX            the traffic of dispatch and combine: an alltoallv, and one that returns everything.
//                         The file MATRIX has a line for each source rank: rows for each destination. Counts
//                         are known and rows lie packed beforehand, and nobody adds up what comes back: a
//                         framework's dispatcher pays for all three on top
//
// One iteration: a barrier, then a call is timed on every rank. With several CALLS: they and a barrier, from the end of the iteration
// before (time that is not measured would let the network recover), divided by CALLS. Maximum over ranks. Reported: percentiles over
// iterations. Each size is checked once, with data that differ by source, destination and offset, the output poisoned first. A
// line of output:
//   label operation ranks size iterations median_us min_us p90_us p99_us ok|BAD
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "collective_task.hpp"
#include "exchange_task.hpp"

namespace peers {

inline std::unique_ptr<Task> make_task(Peer& peer, const std::string& operation, size_t size) {
  if (const auto which = collective_of(operation))
    return std::make_unique<CollectiveTask>(peer, *which, size);
  return std::make_unique<ExchangeTask>(peer, operation, size);
}

class Bench {
 public:
  Bench(Peer& peer, std::string label, double seconds, int calls)
      : peer_(peer), label_(std::move(label)), seconds_(seconds), calls_(calls) {}

  void measure(const std::string& operation, size_t size) {
    task_ = make_task(peer_, operation, size);
    const bool good = verify();
    task_->call();
    peer_.barrier();
    const double start = now();
    for (int i = 0; i < kEstimateCalls; i++) task_->call();
    peer_.barrier();
    const double estimate = peer_.maximum({(now() - start) / kEstimateCalls})[0];
    const int iterations =
        std::clamp(static_cast<int>(seconds_ / (estimate * calls_ + 1e-9)), kMinIterations, kMaxIterations);
    std::vector<double> times = time(static_cast<size_t>(iterations));
    if (peer_.rank() == 0) report(operation.substr(0, operation.find(':')), size, std::move(times), good);
  }

 private:
  static constexpr int kEstimateCalls = 3, kMinIterations = 7, kMaxIterations = 400;

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  std::vector<double> time(size_t iterations) {
    std::vector<double> times(iterations);
    peer_.barrier();
    double begin = now();
    for (double& time : times) {
      if (calls_ == 1) {
        peer_.barrier();
        begin = now();
      }
      for (int i = 0; i < calls_; i++) task_->call();
      if (calls_ > 1) peer_.barrier();  // who sends may be through before anybody has received
      const double end = now();
      time = (end - std::exchange(begin, end)) / calls_;
    }
    return peer_.maximum(std::move(times));
  }

  /// All calls once, checked byte by byte. The same answer on every rank.
  bool verify() {
    task_->fill();
    task_->call();
    return peer_.maximum({task_->right() ? 0.0 : 1.0})[0] == 0.0;
  }

  void report(const std::string& operation, size_t size, std::vector<double> times, bool good) const {
    std::sort(times.begin(), times.end());
    const auto at = [&](double share) {
      return 1e6 * times[std::min(times.size() - 1,
                                  static_cast<size_t>(share * static_cast<double>(times.size())))];
    };
    std::printf("%s %s %d %zu %zu %.1f %.1f %.1f %.1f %s\n", label_.c_str(), operation.c_str(), peer_.ranks(),
                size, times.size(), at(0.5), at(0), at(0.9), at(0.99), good ? "ok" : "BAD");
    std::fflush(stdout);
  }

  Peer& peer_;
  std::string label_;
  double seconds_;
  int calls_;  // of an iteration
  std::unique_ptr<Task> task_;
};

/// The whole program, once the library is initialised.
inline int run_benchmark(Peer& peer, int argc, char** argv) {
  if (argc != 7 || std::atoi(argv[6]) < 1) {
    std::fprintf(stderr, "usage: %s LABEL OPERATIONS MIN MAX SECONDS CALLS\n", argv[0]);
    return 2;
  }
  const size_t min_bytes = std::strtoull(argv[3], nullptr, 0), max_bytes = std::strtoull(argv[4], nullptr, 0);
  Bench bench(peer, argv[1], std::atof(argv[5]), std::atoi(argv[6]));
  std::stringstream operations(argv[2]);
  std::string operation;
  while (std::getline(operations, operation, ','))
    for (size_t bytes = min_bytes; bytes <= max_bytes; bytes *= 4) {
      try {
        bench.measure(operation, bytes);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s: %s: %s\n", argv[1], operation.c_str(), error.what());
        std::exit(2);
      }
    }
  peer.barrier();
  return 0;
}

}  // namespace peers
