#include "ranks.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "../api/ending.hpp"

namespace nccl_programs {
namespace {

/// The programs are linked with NVIDIA's library where that is installed; what is tested is that they run on this one.
class OnEpccl : public testing::Environment {
  void SetUp() override {
    ASSERT_NE(dlsym(RTLD_DEFAULT, "epccl_nccl_shim"), nullptr)
        << "these programs have loaded NVIDIA's libnccl.so.2: set LD_LIBRARY_PATH to <build>/lib/nccl";
  }
};
const testing::Environment* const on_epccl = testing::AddGlobalTestEnvironment(new OnEpccl);

// The id goes from rank 0 through a socket pair that every rank inherits: one message for each other rank.
void run_process(const Job& job, int rank, const int* channel, const epccl::tests::Meeting& meeting,
                 const std::function<void(const RankContext&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (job.ranks_per_node > 0) setenv("EPCCL_HOSTID", std::to_string(rank / job.ranks_per_node).c_str(), 1);
  for (const auto& [name, value] : job.environment) setenv(name.c_str(), value.c_str(), 1);
  RankContext context{rank, job.ranks, {}, &meeting};
  if (rank == 0) {
    NCCL_OK(ncclGetUniqueId(&context.id));
    for (int peer = 1; peer < job.ranks; ++peer)
      if (write(channel[0], &context.id, sizeof context.id) < 0) _exit(1);
  } else if (read(channel[1], &context.id, sizeof context.id) != sizeof context.id) {
    _exit(1);
  }
  body(context);
}

void run_processes(const Job& job, const std::function<void(const RankContext&)>& body) {
  int channel[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), 0);
  const epccl::tests::Meeting meeting;
  epccl::tests::Ending ending;
  std::vector<pid_t> pids;
  fflush(nullptr);
  for (int rank = 0; rank < job.ranks; ++rank) {
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      run_process(job, rank, channel, meeting, body);
      ending.end(rank);
    }
    pids.push_back(pid);
  }
  ending.all_have_begun();
  for (int rank = 0; rank < job.ranks; ++rank) {
    int status = 0;
    ASSERT_EQ(waitpid(pids[static_cast<size_t>(rank)], &status, 0), pids[static_cast<size_t>(rank)]);
    if (std::ranges::find(job.may_die, rank) != job.may_die.end()) continue;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << ": wait status " << status;
  }
  close(channel[0]);
  close(channel[1]);
}

void run_threads(const Job& job, const std::function<void(const RankContext&)>& body) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << ncclGetLastError(nullptr);
  const epccl::tests::Meeting meeting;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < job.ranks; ++rank)
    threads.emplace_back([&body, context = RankContext{rank, job.ranks, id, &meeting}] { body(context); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Job& job) {
  out << job.ranks << (job.as == As::threads ? "Threads" : "Processes");
  if (job.ranks_per_node > 0) out << job.ranks_per_node << "ANode";
  return out;
}

void run_ranks(const Job& job, const std::function<void(const RankContext&)>& body) {
  job.as == As::threads ? run_threads(job, body) : run_processes(job, body);
}

std::vector<int> tell_all(ncclComm_t comm, int number) {
  int ranks = 0;
  NCCL_OK(ncclCommCount(comm, &ranks));
  const std::vector<int> in(static_cast<size_t>(ranks), number);
  std::vector<int> out(in.size(), -1);
  NCCL_OK(ncclAlltoAll(in.data(), out.data(), 1, ncclInt32, comm, nullptr));
  return out;
}

static ncclResult_t state_after(ncclResult_t passing, ncclComm_t comm) {
  ncclResult_t state = passing;
  while (state == passing) {
    NCCL_OK(ncclCommGetAsyncError(comm, &state));
    usleep(100);
  }
  return state;
}

ncclResult_t settled(ncclComm_t comm) {
  return state_after(ncclInProgress, comm);
}

ncclResult_t awaited_failure(ncclComm_t comm) {
  return state_after(ncclSuccess, comm);
}

void expect_success(ncclResult_t result, const char* call, const char* file, int line) {
  if (result != ncclSuccess)
    ADD_FAILURE_AT(file, line) << call << ": " << ncclGetErrorString(result) << ": "
                               << ncclGetLastError(nullptr);
}

Comm::Comm(const RankContext& context, ncclConfig_t* config) {
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, context.ranks, context.id, context.rank, config);
  EXPECT_EQ(result, ncclSuccess) << "rank " << context.rank << ": " << ncclGetLastError(nullptr);
  if (result != ncclSuccess) _exit(1);
}

Comm::~Comm() {
  if (comm_ != nullptr) NCCL_OK(ncclCommDestroy(comm_));
}

}  // namespace nccl_programs
