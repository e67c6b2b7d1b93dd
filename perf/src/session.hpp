// One run's ranks: who and where they are, a communicator of its own for keeping step, and one per measured
// algorithm.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/src/communicator.hpp"
#include "perf/src/coordinator.hpp"
#include "perf/src/run_facts.hpp"
#include "runtime/bootstrap/launch_env.hpp"

namespace epccl::perf {

struct SessionSettings {
  double timeout = 0;                   // seconds; 0: EPCCL_TIMEOUT
  std::vector<std::string> algorithms;  // a communicator for each
  // What a communicator learns of the calling thread as it is made (which GPU is current) is seen to here, once it is known who and
  // where the ranks are; may be empty.
  std::function<Status(const std::vector<RankInfo>& ranks, int rank)> before_communicators;
};

class Session {
 public:
  /// Joins the other ranks that the launcher started. Collective. `fingerprint` must be equal on all ranks (a
  /// hash of what they are asked to do): an error names the rank whose is not.
  static Result<std::unique_ptr<Session>> join(const runtime::LaunchEnv& environment,
                                               const SessionSettings& settings, uint64_t fingerprint);

  int rank() const { return coordinator_->rank(); }
  const std::vector<RankInfo>& ranks() const { return ranks_; }
  int nodes() const { return nodes_; }
  /// node_of()[r]: the node of rank r, numbered by first appearance.
  std::vector<int> node_of() const;

  Coordinator& coordinator() { return *coordinator_; }
  /// One per algorithm of the settings, in their order.
  std::vector<Communicator>& communicators() { return communicators_; }

  /// A regular end. Collective.
  Status close();
  /// Gives up, so that the other ranks do not wait for this one. Idempotent.
  void abort();

 private:
  Session() = default;
  Status introduce(uint64_t fingerprint);
  Status create_communicators(const SessionSettings& settings);
  void wait_until_control_fails() const;

  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Coordinator> coordinator_;
  std::vector<Communicator> communicators_;
  std::vector<RankInfo> ranks_;
  int nodes_ = 0;
};

}  // namespace epccl::perf
