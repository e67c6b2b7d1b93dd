#include "ranks.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "ending.hpp"

namespace epccl::tests {
namespace {

int node_of(const std::vector<int>& ranks_per_node, int rank) {
  int node = 0;
  for (int last = ranks_per_node[0]; rank >= last; last += ranks_per_node[static_cast<size_t>(node)]) ++node;
  return node;
}

// The id goes from rank 0 through a socket pair that every rank inherits: one message for each other rank.
void run_rank(const RunOptions& options, int rank, int ranks, const int* channel, const Meeting& meeting,
              const std::function<void(const RankContext&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  if (options.ranks_per_node.size() > 1)
    setenv("EPCCL_HOSTID", std::to_string(node_of(options.ranks_per_node, rank)).c_str(), 1);
  RankContext context{rank, ranks, {}, &meeting};
  if (rank == 0) {
    EXPECT_EQ(epcclGetUniqueId(&context.id), epcclSuccess) << epcclGetLastError(nullptr);
    for (int peer = 1; peer < ranks; ++peer) {
      EXPECT_EQ(write(channel[0], &context.id, sizeof context.id), static_cast<ssize_t>(sizeof context.id));
    }
  } else {
    EXPECT_EQ(read(channel[1], &context.id, sizeof context.id), static_cast<ssize_t>(sizeof context.id));
  }
  body(context);
}

}  // namespace

void run_ranks(const RunOptions& options, const std::function<void(const RankContext&)>& body) {
  const int ranks = std::accumulate(options.ranks_per_node.begin(), options.ranks_per_node.end(), 0);
  int channel[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), 0);
  const Meeting meeting;
  Ending ending;
  std::vector<pid_t> pids;
  fflush(nullptr);
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      run_rank(options, rank, ranks, channel, meeting, body);
      ending.end(rank);
    }
    pids.push_back(pid);
  }
  ending.all_have_begun();
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(pids[static_cast<size_t>(rank)], &status, 0), pids[static_cast<size_t>(rank)]);
    if (std::ranges::find(options.may_die, rank) != options.may_die.end()) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << ": wait status " << status;
  }
  close(channel[0]);
  close(channel[1]);
}

Comm::Comm(const RankContext& context, const char* algorithm, double timeout) {
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  config.algorithm = algorithm;
  const epcclResult_t result =
      epcclCommInitRankConfig(&comm_, context.ranks, context.id, context.rank, &config);
  EXPECT_EQ(result, epcclSuccess) << "rank " << context.rank << ": " << epcclGetLastError(nullptr);
  if (result != epcclSuccess) _exit(1);
  // Not in the configuration: ranks that are late in joining are none of the tests' matter.
  EXPECT_EQ(epcclCommSetTimeout(comm_, timeout), epcclSuccess);
}

Comm::~Comm() {
  if (comm_ == nullptr) return;
  EXPECT_EQ(epcclCommDestroy(comm_), epcclSuccess);
}

uint8_t unique_byte(int source, int destination, uint64_t offset, int iteration) {
  uint64_t x = static_cast<uint64_t>(source) * 0x9e3779b97f4a7c15ULL ^
               static_cast<uint64_t>(destination) * 0xc2b2ae3d27d4eb4fULL ^ offset * 0x165667b19e3779f9ULL ^
               static_cast<uint64_t>(iteration) * 0x27d4eb2f165667c5ULL;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ULL;
  return static_cast<uint8_t>(1 + (x >> 33) % 255);
}

}  // namespace epccl::tests
