// Runs a test's body as several ranks: threads of this process, or processes. Like every file of these programs it includes
// NVIDIA's nccl.h and nothing of EPCCL.
#pragma once

#include <nccl.h>

#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "../api/meeting.hpp"

namespace nccl_programs {

struct RankContext {
  int rank = 0;
  int ranks = 1;
  ncclUniqueId id{};
  const epccl::tests::Meeting* meeting = nullptr;

  /// Returns when all ranks have come, without the library's help.
  void meet() const { meeting->come(ranks); }
};

enum class As { threads, processes };

/// A number of ranks, and what they are.
struct Job {
  As as;
  int ranks;
  int ranks_per_node = 0;         // processes only; 0: all on one node
  std::vector<int> may_die = {};  // processes only: ranks whose exit is not checked
  std::vector<std::pair<std::string, std::string>> environment = {};  // processes only
};
std::ostream& operator<<(std::ostream& out, const Job& job);

/// Fails the calling test when a rank fails. The rank 0 makes the id.
void run_ranks(const Job& job, const std::function<void(const RankContext&)>& body);

/// A communicator for the length of a scope. The rank ends (and fails) when it cannot be made.
class Comm {
 public:
  explicit Comm(const RankContext& context, ncclConfig_t* config = nullptr);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm();
  operator ncclComm_t() const { return comm_; }  // NOLINT: reads like the handle it is
  /// The handle is gone: aborted or destroyed by the test.
  void forget() { comm_ = nullptr; }

 private:
  ncclComm_t comm_ = nullptr;
};

/// The ranks of `comm` tell each other a number each; what came is in rank order.
std::vector<int> tell_all(ncclComm_t comm, int number);

/// The state of `comm` once it is not in progress any more.
ncclResult_t settled(ncclComm_t comm);

/// The failure of `comm` of which this rank is told though it makes no call.
ncclResult_t awaited_failure(ncclComm_t comm);

void expect_success(ncclResult_t result, const char* call, const char* file, int line);

}  // namespace nccl_programs

/// A call that must succeed.
#define NCCL_OK(call) ::nccl_programs::expect_success((call), #call, __FILE__, __LINE__)
/// A call that must fail with this code and say this.
#define NCCL_FAILS(call, code, text)                                  \
  do {                                                                \
    EXPECT_EQ((call), code);                                          \
    EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr(text)); \
  } while (0)
