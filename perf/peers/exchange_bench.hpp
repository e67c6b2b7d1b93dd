// How every peer is measured: the same data, the same iterations, the same output, whatever library does the
// exchange.
//
//   PROGRAM LABEL OPERATIONS MIN MAX SECONDS     sizes MIN, 4 MIN, ... MAX bytes per rank pair, about SECONDS
//   for each
//
// Operations, comma separated, all out of place on plain memory:
//   alltoall, alltoallv   the same number of bytes for every rank pair, oneself included
//   alltoallv_zipf        as much per sender, but split over destinations in proportion 1/(1+d)^0.8: rank 0
//   is the hottest twostage              alltoall's exchange, made by hand from two alltoalls (where the peer
//   offers it)
//
// One iteration: barrier, the call timed on every rank, maximum over ranks. Reported: percentiles over
// iterations. Each size is checked once, with data unique to (source, destination, offset), the output
// poisoned first. A line of output: label operation ranks bytes_per_pair iterations median_us min_us p90_us
// p99_us ok|BAD
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace peers {

/// Bytes to and from each rank, and where they start.
struct Layout {
  std::vector<int> send_bytes, send_offsets, recv_bytes, recv_offsets;
  size_t send_total = 0, recv_total = 0;
};

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

  void measure(const std::string& operation, size_t bytes_per_pair) {
    layout_ = make_layout(operation == "alltoallv_zipf", bytes_per_pair);
    send_.resize(std::max(send_.size(), layout_.send_total));
    recv_.resize(std::max(recv_.size(), layout_.recv_total));
    bytes_per_pair_ = static_cast<int>(bytes_per_pair);
    operation_ = operation;
    const bool good = verify();
    call();
    peer_.barrier();
    const double start = now();
    for (int i = 0; i < kEstimateCalls; i++) call();
    peer_.barrier();
    const double estimate = peer_.maximum({(now() - start) / kEstimateCalls})[0];
    const int iterations =
        std::clamp(static_cast<int>(seconds_ / (estimate + 1e-9)), kMinIterations, kMaxIterations);
    std::vector<double> times(static_cast<size_t>(iterations));
    for (double& time : times) {
      peer_.barrier();
      const double begin = now();
      call();
      time = now() - begin;
    }
    times = peer_.maximum(std::move(times));
    if (peer_.rank() == 0) report(std::move(times), good);
  }

 private:
  static constexpr int kEstimateCalls = 3, kMinIterations = 7, kMaxIterations = 400;

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static char pattern(int source, int destination, size_t offset) {
    return static_cast<char>(static_cast<size_t>(source * 31 + destination * 7) + offset * 13 +
                             (offset >> 8) + 1);
  }

  Layout make_layout(bool zipf, size_t bytes_per_pair) const {
    const int ranks = peer_.ranks();
    double sum = 0;
    const auto weight = [&](int destination) { return zipf ? std::pow(1.0 / (1 + destination), 0.8) : 1.0; };
    for (int d = 0; d < ranks; d++) sum += weight(d);
    const auto bytes_to = [&](int destination) {
      if (!zipf) return static_cast<int>(bytes_per_pair);
      return static_cast<int>(ranks * static_cast<double>(bytes_per_pair) * weight(destination) / sum) & ~15;
    };
    Layout layout;
    for (int r = 0; r < ranks; r++) {
      layout.send_offsets.push_back(static_cast<int>(layout.send_total));
      layout.send_bytes.push_back(bytes_to(r));
      layout.send_total += static_cast<size_t>(bytes_to(r));
      layout.recv_offsets.push_back(static_cast<int>(layout.recv_total));
      layout.recv_bytes.push_back(bytes_to(peer_.rank()));
      layout.recv_total += static_cast<size_t>(bytes_to(peer_.rank()));
    }
    return layout;
  }

  void call() {
    if (operation_ == "alltoall") {
      peer_.alltoall(send_.data(), recv_.data(), bytes_per_pair_);
    } else if (operation_ == "twostage") {
      if (!peer_.twostage(send_.data(), recv_.data(), bytes_per_pair_)) {
        std::fprintf(stderr, "%s: no twostage here (unequal ranks per node, or not a peer that has it)\n",
                     label_.c_str());
        std::exit(2);
      }
    } else {
      peer_.alltoallv(send_.data(), recv_.data(), layout_);
    }
  }

  /// One call, checked byte by byte. The same answer on every rank.
  bool verify() {
    for (size_t peer = 0; peer < layout_.send_bytes.size(); peer++)
      for (int i = 0; i < layout_.send_bytes[peer]; i++)
        send_[static_cast<size_t>(layout_.send_offsets[peer] + i)] =
            pattern(peer_.rank(), static_cast<int>(peer), static_cast<size_t>(i));
    std::fill_n(recv_.begin(), layout_.recv_total, static_cast<char>(0xa5));
    call();
    bool wrong = false;
    for (size_t peer = 0; peer < layout_.recv_bytes.size(); peer++)
      for (int i = 0; i < layout_.recv_bytes[peer]; i++)
        wrong |= recv_[static_cast<size_t>(layout_.recv_offsets[peer] + i)] !=
                 pattern(static_cast<int>(peer), peer_.rank(), static_cast<size_t>(i));
    return peer_.maximum({wrong ? 1.0 : 0.0})[0] == 0.0;
  }

  void report(std::vector<double> times, bool good) const {
    std::sort(times.begin(), times.end());
    const auto at = [&](double share) {
      return 1e6 * times[std::min(times.size() - 1,
                                  static_cast<size_t>(share * static_cast<double>(times.size())))];
    };
    std::printf("%s %s %d %d %zu %.1f %.1f %.1f %.1f %s\n", label_.c_str(), operation_.c_str(), peer_.ranks(),
                bytes_per_pair_, times.size(), at(0.5), at(0), at(0.9), at(0.99), good ? "ok" : "BAD");
    std::fflush(stdout);
  }

  Peer& peer_;
  std::string label_, operation_;
  double seconds_;
  int bytes_per_pair_ = 0;
  Layout layout_;
  std::vector<char> send_, recv_;
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
    for (size_t bytes = min_bytes; bytes <= max_bytes; bytes *= 4) bench.measure(operation, bytes);
  peer.barrier();
  return 0;
}

}  // namespace peers
