#include "runtime/comm/network_choice.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/clock.hpp"

namespace epccl::runtime {
namespace {

using transports::Completion;
using transports::MessageTransport;

constexpr size_t small_bytes = 64, large_bytes = 1 << 20;
// For each transport. What works takes milliseconds, on machines that emulate their NICs seconds; what does not work costs all of it,
// while the other ranks wait for the outcome: both transports together have half of the time for which they do.
constexpr double longest_patience = 10, part_of_timeout = 0.25;

double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

/// Messages between this rank and one peer, in turn.
class PingPong {
 public:
  PingPong(MessageTransport& transport, int peer, bool leads, double deadline)
      : transport_(transport), peer_(peer), leads_(leads), deadline_(deadline) {}

  /// The median time of `rounds`: `bytes` from the leader, and the answer. The first few are not counted.
  Result<double> time(size_t bytes, int rounds) {
    constexpr int warm_up = 2;
    std::vector<double> seconds;
    for (int round = -warm_up; round < rounds; ++round) {
      const double begin = now_seconds();
      if (leads_) {
        EPCCL_TRY(send(bytes));
        EPCCL_TRY(receive(small_bytes));
      } else {
        EPCCL_TRY(receive(bytes));
        EPCCL_TRY(send(small_bytes));
      }
      if (round >= 0) seconds.push_back(now_seconds() - begin);
    }
    return median_of(std::move(seconds));
  }

  /// Until what was sent has left.
  Status drain() {
    while (!transport_.drained()) EPCCL_TRY(drive());
    return {};
  }

 private:
  Status send(size_t bytes) {
    Completion completion;
    EPCCL_TRY(transport_.send(peer_, key_++, out_.data(), bytes, completion));
    return wait(completion);
  }
  Status receive(size_t bytes) {
    Completion completion;
    EPCCL_TRY(transport_.recv(peer_, key_++, in_.data(), bytes, completion));
    return wait(completion);
  }
  Status wait(const Completion& completion) {
    Status late;
    while (!completion.finished())
      if (Status status = drive(); !status.ok()) late = std::move(status);
    if (!late.ok()) return late;
    return completion.state == Completion::State::done ? Status() : completion.status;
  }
  /// Past the deadline everything pending ends, too.
  Status drive() {
    if (!transport_.progress()) sched_yield();
    if (now_seconds() < deadline_) return {};
    transport_.cancel_all();
    return error(Code::remote_error, "rank {} did not answer in time", peer_);
  }

  MessageTransport& transport_;
  const int peer_;
  const bool leads_;
  const double deadline_;
  transports::MessageKey key_ = 0;
  std::vector<std::byte> out_{large_bytes}, in_{large_bytes};
};

/// How well a rank could open a transport, told to the other one.
Status tell(Bootstrap& bootstrap, const std::string& key, const Status& status) {
  return bootstrap.publish(key, std::as_bytes(std::span(status.message())));
}
Status hear(Bootstrap& bootstrap, int rank, const std::string& key) {
  EPCCL_ASSIGN(const Blob text, bootstrap.lookup(rank, key));
  if (text.empty()) return {};
  return error(Code::remote_error, "rank {}: {}", rank,
               std::string(reinterpret_cast<const char*>(text.data()), text.size()));
}

Result<MessageTimes> measure(Bootstrap& bootstrap, NetworkKind kind, int peer, bool leads, double patience,
                             const NetworkOpener& open) {
  const std::string key = fmt::format("{} measured", to_string(kind));
  auto opened = open(kind, key);
  EPCCL_TRY(tell(bootstrap, key + ": opened", opened.ok() ? Status() : opened.status()));
  const Status there = hear(bootstrap, peer, key + ": opened");
  if (!opened.ok()) return std::move(opened).take_status();
  EPCCL_TRY(there);
  auto times = time_messages(**opened, peer, leads, patience);
  // Neither closes while the other may need it.
  EPCCL_TRY(tell(bootstrap, key + ": done", {}));
  EPCCL_TRY(hear(bootstrap, peer, key + ": done"));
  return times;
}

struct Verdict {
  int32_t kind = 0;
  std::array<char, 500> why{};
};

std::string describe(const Result<MessageTimes>& times) {
  if (!times.ok()) return "failed (" + times.status().message() + ")";
  return fmt::format("{:.1f} us for {} bytes, {:.0f} us for 1 MiB", 1e6 * times->small, small_bytes,
                     1e6 * times->large);
}

}  // namespace

NetworkChoice choose_network(NetworkKind forced, uint32_t drivers) {
  if (forced != NetworkKind::automatic && forced != NetworkKind::measured)
    return {forced, "as EPCCL_NET says"};
  // docs/rdma.md says why verbs goes first.
  if ((drivers & verbs_driver) != 0) return {NetworkKind::verbs, "every rank has an RDMA port that is up"};
  if ((drivers & ucx_driver) != 0)
    return {NetworkKind::ucx, "every rank has an RDMA device, but not one that libibverbs can use"};
  return {NetworkKind::tcp, "not every rank has an RDMA device and something to drive it"};
}

Result<MessageTimes> time_messages(MessageTransport& transport, int peer, bool leads, double patience) {
  PingPong messages(transport, peer, leads, now_seconds() + patience);
  MessageTimes times;
  constexpr int small_rounds = 31, large_rounds = 7;
  EPCCL_ASSIGN(const double there_and_back, messages.time(small_bytes, small_rounds));
  times.small = there_and_back / 2;
  EPCCL_ASSIGN(times.large, messages.time(large_bytes, large_rounds));
  EPCCL_TRY(messages.drain());
  return times;
}

NetworkChoice compare_networks(const Result<MessageTimes>& verbs, const Result<MessageTimes>& ucx) {
  const std::string both = fmt::format("measured: verbs {}; ucx {}", describe(verbs), describe(ucx));
  if (!verbs.ok() || !ucx.ok())
    return {verbs.ok() || !ucx.ok() ? NetworkKind::verbs : NetworkKind::ucx, both};
  constexpr double margin = 1.1;
  const double ratio = std::sqrt(verbs->small / ucx->small * (verbs->large / ucx->large));
  return {ratio > margin ? NetworkKind::ucx : NetworkKind::verbs, both};
}

Result<NetworkChoice> measure_networks(Bootstrap& bootstrap, int rank, int first, int second, double timeout,
                                       const NetworkOpener& open) {
  constexpr const char* key = "measured network";
  if (rank == first || rank == second) {
    const int peer = rank == first ? second : first;
    const double patience = std::min(longest_patience, part_of_timeout * timeout);
    const auto verbs = measure(bootstrap, NetworkKind::verbs, peer, rank == first, patience, open);
    const auto ucx = measure(bootstrap, NetworkKind::ucx, peer, rank == first, patience, open);
    if (rank == first) {
      const NetworkChoice choice = compare_networks(verbs, ucx);
      Verdict verdict;
      verdict.kind = static_cast<int32_t>(choice.kind);
      const std::string why = fmt::format("{} (ranks {} and {})", choice.why, first, second);
      std::memcpy(verdict.why.data(), why.data(), std::min(why.size(), verdict.why.size() - 1));
      EPCCL_TRY(bootstrap.publish(key, std::as_bytes(std::span(&verdict, 1))));
    }
  }
  EPCCL_ASSIGN(const Blob blob, bootstrap.lookup(first, key));
  Verdict verdict;
  if (blob.size() != sizeof verdict)
    return error(Code::remote_error, "rank {} measured something in {} bytes, not {}", first, blob.size(),
                 sizeof verdict);
  std::memcpy(&verdict, blob.data(), sizeof verdict);
  verdict.why.back() = 0;
  return NetworkChoice{static_cast<NetworkKind>(verdict.kind), verdict.why.data()};
}

}  // namespace epccl::runtime
