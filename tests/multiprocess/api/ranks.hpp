// Runs a test's body as several ranks, each a process of its own.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "epccl/epccl.h"
#include "meeting.hpp"

namespace epccl::tests {

/// What a rank's body is given.
struct RankContext {
  int rank = 0;
  int ranks = 1;
  epcclUniqueId id{};
  const Meeting* meeting = nullptr;

  /// Returns when all ranks have come, without the library's help.
  void meet() const { meeting->come(ranks); }
};

struct RunOptions {
  std::vector<int> ranks_per_node;  // {4}: one node; {2, 2}: two virtual nodes (EPCCL_HOSTID)
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<int> may_die;  // ranks whose exit is not checked
};

/// Forks the ranks; each runs `body` (gtest assertions work in it) and exits with whether it failed. Rank 0 makes the id.
/// Fails the calling test when a rank fails.
void run_ranks(const RunOptions& options, const std::function<void(const RankContext&)>& body);

/// A communicator for the length of a scope; the test fails when it cannot be made.
class Comm {
 public:
  explicit Comm(const RankContext& context, const char* algorithm = nullptr, double timeout = 0);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm();
  operator epcclComm_t() const { return comm_; }  // NOLINT: reads like the handle it is
  /// The handle is gone: aborted or destroyed by the test.
  void forget() { comm_ = nullptr; }

 private:
  epcclComm_t comm_ = nullptr;
};

/// A byte that says where it comes from; never zero.
uint8_t unique_byte(int source, int destination, uint64_t offset, int iteration);

inline constexpr uint8_t poison = 0;

}  // namespace epccl::tests
