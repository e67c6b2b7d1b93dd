// How every peer is measured: the same data, the same iterations, the same output, whatever library does the
// exchange.
//
//   PROGRAM LABEL OPERATIONS MIN MAX SECONDS     sizes MIN, 4 MIN, ... MAX bytes, about SECONDS for each
//
// Operations, comma separated, all out of place on plain memory; a size is that of a rank pair, or (moe) of a
// row:
//   alltoall, alltoallv   the same number of bytes for every rank pair, oneself included
//   alltoallv_zipf        as much per sender, but split over destinations in proportion 1/(1+d)^0.8: rank 0
//                         is the hottest
//   twostage              alltoall's exchange, made by hand from two alltoalls (where the peer offers it)
//   moe:MATRIX            the traffic of dispatch and combine: an alltoallv, and one that returns everything.
//                         The file MATRIX has a line for each source rank: rows for each destination. Counts
//                         are known and rows lie packed beforehand, and nobody adds up what comes back: a
//                         framework's dispatcher pays for all three on top
//
// One iteration: a barrier, the operation's calls timed together on every rank, maximum over ranks. Reported: percentiles over iterations. Each size is checked once, with data
// unique to (source, destination, offset), the output poisoned first. A line of output:
//   label operation ranks size iterations median_us min_us p90_us p99_us ok|BAD
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "layout.hpp"

namespace peers {

/// What the library under measurement provides.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  virtual void barrier() = 0;
  /// Element-wise maximum over ranks, on every rank.
  virtual std::vector<double> maximum(std::vector<double> values) = 0;
  virtual void alltoall(const char* send, char* recv, int bytes_per_pair) = 0;
  virtual void alltoallv(const char* send, char* recv, const Layout& layout) = 0;
  /// False where this peer cannot do it.
  virtual bool twostage(const char* /*send*/, char* /*recv*/, int /*bytes_per_pair*/) { return false; }
};

class Bench {
 public:
  Bench(Peer& peer, std::string label, double seconds)
      : peer_(peer), label_(std::move(label)), seconds_(seconds) {}

  void measure(const std::string& operation, size_t size) {
    prepare(operation, size);
    const bool good = verify();
    call();
    peer_.barrier();
    const double start = now();
    for (int i = 0; i < kEstimateCalls; i++) call();
    peer_.barrier();
    const double estimate = peer_.maximum({(now() - start) / kEstimateCalls})[0];
    const int iterations =
        std::clamp(static_cast<int>(seconds_ / (estimate + 1e-9)), kMinIterations, kMaxIterations);
    std::vector<double> times = time(static_cast<size_t>(iterations));
    if (peer_.rank() == 0) report(operation.substr(0, operation.find(':')), size, std::move(times), good);
  }

 private:
  static constexpr int kEstimateCalls = 3, kMinIterations = 7, kMaxIterations = 400;
  static constexpr char kPoison = static_cast<char>(0xa5);

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static char pattern(int source, int destination, size_t offset) {
    return static_cast<char>(static_cast<size_t>(source * 31 + destination * 7) + offset * 13 +
                             (offset >> 8) + 1);
  }

  /// Sets layouts, buffers and calls of an operation.
  void prepare(const std::string& operation, size_t size) {
    const int rank = peer_.rank(), ranks = peer_.ranks(), bytes = static_cast<int>(size);
    constexpr std::string_view moe = "moe:";
    const bool returns = operation.starts_with(moe);
    if (returns) {
      layout_ = matrix_layout(rank, ranks, operation.substr(moe.size()), size);
    } else if (operation == "alltoallv_zipf") {
      layout_ = zipf_layout(rank, ranks, size);
    } else {
      layout_ = uniform_layout(rank, ranks, size);
    }
    back_layout_ = returns ? layout_.reversed() : Layout{};
    send_.resize(std::max(send_.size(), layout_.send_total));
    recv_.resize(std::max(recv_.size(), layout_.recv_total));
    back_.resize(std::max(back_.size(), back_layout_.recv_total));
    if (operation == "alltoall") {
      calls_ = {[this, bytes] { peer_.alltoall(send_.data(), recv_.data(), bytes); }};
    } else if (operation == "twostage") {
      calls_ = {[this, bytes] {
        if (!peer_.twostage(send_.data(), recv_.data(), bytes))
          throw std::runtime_error("no twostage here (unequal ranks per node, or not a peer that has it)");
      }};
    } else {
      calls_ = {[this] { peer_.alltoallv(send_.data(), recv_.data(), layout_); }};
      if (returns) calls_.emplace_back([this] { peer_.alltoallv(recv_.data(), back_.data(), back_layout_); });
    }
  }

  void call() {
    for (const auto& call : calls_) call();
  }

  std::vector<double> time(size_t iterations) {
    std::vector<double> times(iterations);
    for (double& time : times) {
      peer_.barrier();
      const double begin = now();
      call();
      time = now() - begin;
    }
    return peer_.maximum(std::move(times));
  }

  /// All calls once, checked byte by byte. The same answer on every rank.
  bool verify() {
    for (size_t peer = 0; peer < layout_.send_bytes.size(); peer++)
      for (int i = 0; i < layout_.send_bytes[peer]; i++)
        send_[static_cast<size_t>(layout_.send_offsets[peer] + i)] =
            pattern(peer_.rank(), static_cast<int>(peer), static_cast<size_t>(i));
    std::fill_n(recv_.begin(), layout_.recv_total, kPoison);
    std::fill_n(back_.begin(), back_layout_.recv_total, kPoison);
    call();
    bool wrong = false;
    for (size_t peer = 0; peer < layout_.recv_bytes.size(); peer++)
      for (int i = 0; i < layout_.recv_bytes[peer]; i++)
        wrong |= recv_[static_cast<size_t>(layout_.recv_offsets[peer] + i)] !=
                 pattern(static_cast<int>(peer), peer_.rank(), static_cast<size_t>(i));
    wrong |= !std::equal(back_.begin(), back_.begin() + static_cast<ptrdiff_t>(back_layout_.recv_total),
                         send_.begin());
    return peer_.maximum({wrong ? 1.0 : 0.0})[0] == 0.0;
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
  Layout layout_, back_layout_;
  std::vector<std::function<void()>> calls_;
  std::vector<char> send_, recv_, back_;
};

/// The whole program, once the library is initialised.
inline int run_benchmark(Peer& peer, int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s LABEL OPERATIONS MIN MAX SECONDS\n", argv[0]);
    return 2;
  }
  const size_t min_bytes = std::strtoull(argv[3], nullptr, 0), max_bytes = std::strtoull(argv[4], nullptr, 0);
  Bench bench(peer, argv[1], std::atof(argv[5]));
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
