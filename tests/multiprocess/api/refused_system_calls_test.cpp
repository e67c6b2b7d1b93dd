// Filters of system calls (seccomp) that refuse what waiting takes: what is refused is named, at once, instead of a rank that says nothing.
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "../../unit/base/refused_call.hpp"
#include "ranks.hpp"

#ifdef SYS_epoll_wait  // not every architecture has the old calls
namespace epccl::tests {
namespace {

[[noreturn]] void make_an_id_without(long call) {
  epcclUniqueId id;
  const bool is_refused = test::refuse_call(call, EPERM);
  const bool made = epcclGetUniqueId(&id) == epcclSuccess;
  std::fputs(epcclGetLastError(nullptr), stderr);
  _exit(is_refused && !made ? 0 : 1);
}

TEST(RefusedSystemCalls, AreNamedByWhoMakesAnId) {
  for (const auto& [call, name] :
       {std::pair(SYS_epoll_wait, "epoll_wait"), std::pair(SYS_accept4, "accept4")})
    EXPECT_EXIT(make_an_id_without(call), testing::ExitedWithCode(0),
                std::string(name) + ": Operation not permitted .errno 1.: a seccomp filter may forbid it");
}

[[noreturn]] void join_without(long call) {
  epcclUniqueId id;
  epcclComm_t comm = nullptr;
  const bool made = epcclGetUniqueId(&id) == epcclSuccess && test::refuse_call(call, ENOSYS);
  const bool joined = epcclCommInitRank(&comm, 2, id, 0) == epcclSuccess;
  std::fputs(epcclGetLastError(nullptr), stderr);
  _exit(made && !joined ? 0 : 1);
}

TEST(RefusedSystemCalls, AreNamedByWhoJoins) {
  EXPECT_EXIT(join_without(SYS_poll), testing::ExitedWithCode(0),
              "poll: Function not implemented .errno 38.: a seccomp filter may forbid it");
}

TEST(RefusedSystemCalls, AreNamedByACallOfARankThatIsFilteredLater) {
  run_ranks({{1, 1}, {{"EPCCL_NET", "tcp"}}, {}}, [](const RankContext& context) {
    Comm comm(context, nullptr, 20);
    // More than a socket takes at once: a short message may need no wait.
    std::vector<int64_t> mine(size_t{1} << 20, 1), sum(mine.size());
    const auto reduce = [&] {
      return epcclAllReduce(mine.data(), sum.data(), mine.size(), epcclInt64, epcclSum, comm, nullptr);
    };
    ASSERT_EQ(reduce(), epcclSuccess);
    const bool is_filtered = context.rank == 1;  // without the rendezvous
    ASSERT_TRUE(!is_filtered || test::refuse_call(SYS_epoll_wait, EPERM));
    EXPECT_NE(reduce(), epcclSuccess);
    const std::string why = epcclGetLastError(comm);
    EXPECT_TRUE(!is_filtered || why.find("epoll_wait: Operation not permitted") != std::string::npos) << why;
    EXPECT_EQ(epcclCommAbort(comm), epcclSuccess);
    comm.forget();
  });
}

}  // namespace
}  // namespace epccl::tests
#endif
