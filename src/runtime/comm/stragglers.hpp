// The ranks of a communicator tell each other how long each waited in its last calls (times/call_times.hpp), and find who came late.
//
//   a call, a call, ... a call          every rank, in one order
//                            | exchange: an allgather of all ranks' records, in the turn of the last call
//                            | compare_ranks(): the same everywhere
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "runtime/times/call_times.hpp"
#include "runtime/times/lateness.hpp"
#include "topology/cluster.hpp"

namespace epccl::runtime {

/// What ranks say of it: a line for each that is late, those of a node together if all of them are. `hosts`: by node.
std::vector<std::string> describe(const Lateness& found, const topology::Cluster& cluster,
                                  const std::vector<std::string>& hosts);

class Stragglers {
 public:
  /// Tells every rank so many bytes (Communicator::tell_all).
  using TellAll = std::function<Status(const void* mine, uint64_t bytes, std::byte* by_rank)>;

  /// `every`: calls after which ranks compare; 0: when they are asked to.
  Stragglers(const topology::Cluster& cluster, const std::vector<std::string>& hosts, int rank,
             uint64_t every, TellAll tell_all)
      : cluster_(cluster),
        hosts_(hosts),
        rank_(rank),
        every_(every),
        tell_all_(std::move(tell_all)),
        times_(every > 0, most_records(cluster.ranks())) {}

  CallTimes& times() { return times_; }
  const CallTimes& times() const { return times_; }

  /// Of the calls since it was asked last. Collective, in a turn. Error on all ranks, where some do not measure their calls.
  Result<Lateness> compare(double threshold);
  /// Whether so many calls have been made that it is time to.
  bool is_due() const { return every_ > 0 && times_.comparable() >= every_; }
  /// Compares, and says at WARN who is late.
  Status say();

  static constexpr double default_threshold = 0.05;

 private:
  /// What one rank sends is this and the records.
  struct Head {
    uint64_t is_measuring = 0, records = 0;
  };

  /// 2 MiB in all, where ranks are many.
  static size_t most_records(int ranks);
  std::vector<std::byte> message();
  Status exchange();
  /// Of what exchange() has brought.
  Result<Lateness> found(double threshold);

  const topology::Cluster& cluster_;
  const std::vector<std::string>& hosts_;
  const int rank_;
  const uint64_t every_;
  const TellAll tell_all_;
  CallTimes times_;
  std::vector<std::byte> all_;  // ranks' messages
};

}  // namespace epccl::runtime
