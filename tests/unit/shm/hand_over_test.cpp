// Memory that is handed over to who may not open it: to ranks of the node only, by the very process that it is of. And what ranks of a node
// find out of each other before.
#include "transports/shm/hand_over.hpp"

#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "node.hpp"
#include "refused_calls.hpp"
#include "transports/shm/node_socket.hpp"

namespace epccl::transports {
namespace {

/// What a child finds to be so.
int exit_of_child(const std::function<int()>& find) {
  const pid_t child = fork();
  if (child == 0) _exit(find());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void limit_descriptors(rlim_t soft, rlim_t hard) {
  const rlimit limit{soft, hard};
  setrlimit(RLIMIT_NOFILE, &limit);
}

/// The number that the next one will have.
rlim_t next_descriptor() {
  return static_cast<rlim_t>(UniqueFd(dup(0)).get());
}

UniqueFd socket_of_kind() {
  return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

/// Connections of one that says nothing.
std::vector<UniqueFd> silent(const SegmentHandle& node, int count) {
  const NodeSocket name(node.token, 0, "-memory");
  std::vector<UniqueFd> connections;
  for (int i = 0; i < count; ++i) {
    connections.push_back(socket_of_kind());
    EXPECT_EQ(connect(connections.back().get(), name.get(), name.length), 0);
  }
  return connections;
}

/// An owner: this process has the segment, a window, and hands them over.
class HandingOver : public testing::Test {
 protected:
  HandingOver()
      : segment_(NodeSegment::create(spec_of(2)).value()),
        hands_(HandOver::start(segment_, 0).value()),
        window_(static_cast<char*>(device::allocate_window(8192).value())),
        place_(device::find_window(window_, 8192).value()) {}
  ~HandingOver() override {
    if (window_ != nullptr) static_cast<void>(device::free_window(window_));
  }
  std::string refused(const SegmentHandle& node, const device::WindowRef& place) const {
    const auto handed = ask_for_window(node, 0, place);
    EXPECT_FALSE(handed.ok());
    return handed.status().message();
  }

  NodeSegment segment_;
  std::unique_ptr<HandOver> hands_;
  char* window_;
  device::WindowRef place_;
};

TEST_F(HandingOver, GivesTheSegmentAndWindows) {
  std::strcpy(window_, "the owner's");
  const int found = exit_of_child([&] {
    const auto segment = ask_for_window(segment_.handle(), 0, segment_.handle().memory);
    if (!segment.ok() || !NodeSegment::attach(spec_of(2), segment_.handle(), *segment).ok()) return 1;
    const auto window = ask_for_window(segment_.handle(), 0, place_);
    if (!window.ok()) return 2;
    const auto mapped = device::map_window(*window, place_, device::Pages::all);
    if (!mapped.ok()) return 3;
    if (std::strcmp(reinterpret_cast<char*>(*mapped), "the owner's") != 0) return 4;
    std::strcpy(reinterpret_cast<char*>(*mapped), "the peer's");
    return 0;
  });
  EXPECT_EQ(found, 0);
  EXPECT_STREQ(window_, "the peer's");
}

TEST_F(HandingOver, IsForThoseWhoKnowTheSecret) {
  SegmentHandle other = segment_.handle();
  ++other.secret[7];
  EXPECT_NE(refused(other, place_).find("has hung up 5 times"), std::string::npos);
}

TEST_F(HandingOver, GivesNothingThatIsNoWindow) {
  device::WindowRef other = place_;
  other.fd = 0;  // this process's own
  EXPECT_NE(refused(segment_.handle(), other).find("does not hand it over"), std::string::npos);
  EXPECT_TRUE(device::free_window(std::exchange(window_, nullptr)).ok());
  EXPECT_NE(refused(segment_.handle(), place_).find("freed while in use?"), std::string::npos);
}

// A number may be of another PID namespace.
TEST_F(HandingOver, IsOfTheProcessThatIsMeantOnly) {
  device::WindowRef other = place_;
  other.pid = getppid();
  EXPECT_NE(refused(segment_.handle(), other).find("listens in the place of process"), std::string::npos);
}

TEST_F(HandingOver, SaysWhyNobodyAnswers) {
  hands_.reset();
  EXPECT_NE(refused(segment_.handle(), place_).find("gone or in another network namespace"),
            std::string::npos);
}

TEST_F(HandingOver, SaysWhichWindowWasFreed) {
  EXPECT_TRUE(device::free_window(std::exchange(window_, nullptr)).ok());
  const auto handed = ask_for_window(segment_.handle(), 0, place_);
  EXPECT_EQ(handed.status().code(), Code::remote_error);
  EXPECT_NE(handed.status().message().find(fmt::format("local rank 0, process {}", getpid())),
            std::string::npos)
      << handed.status().message();
}

// One after the other would each cost its second.
TEST_F(HandingOver, IsNotHeldUpByThoseWhoSayNothing) {
  const auto connections = silent(segment_.handle(), 8);
  const auto handed = ask_for_window(segment_.handle(), 0, place_, {4});
  EXPECT_TRUE(handed.ok()) << handed.status().message();
}

// As is who comes too late with what it asks for.
TEST_F(HandingOver, IsAskedForAgainWhereItHasHungUp) {
  hands_.reset();
  const NodeSocket name(segment_.handle().token, 0, "-memory");
  const UniqueFd listener = socket_of_kind();
  ASSERT_EQ(bind(listener.get(), name.get(), name.length), 0);
  ASSERT_EQ(listen(listener.get(), 8), 0);
  std::thread owner([&] {
    for (int i = 0; i < 3; ++i) UniqueFd(accept(listener.get(), nullptr, nullptr)).reset();
    const UniqueFd last(accept(listener.get(), nullptr, nullptr));
    const int32_t there_is_none = ENOENT;
    EXPECT_EQ(send(last.get(), &there_is_none, sizeof there_is_none, MSG_NOSIGNAL), sizeof there_is_none);
    char request[64];
    while (recv(last.get(), request, sizeof request, 0) > 0) {
    }
  });
  EXPECT_NE(refused(segment_.handle(), place_).find("freed while in use?"), std::string::npos);
  owner.join();
}

TEST_F(HandingOver, NeedsNoDescriptorMoreThanItsConnections) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "sanitizers look at memory by descriptors of their own";
#endif
  EXPECT_EQ(exit_of_child([&] {
              char* const window = static_cast<char*>(device::allocate_window(4096).value());
              const device::WindowRef place = device::find_window(window, 4096).value();
              const auto hands = HandOver::start(segment_, 1);
              const pid_t peer = fork();
              if (peer == 0) {
                usleep(100'000);
                _exit(ask_for_window(segment_.handle(), 1, place).ok() ? 0 : 1);
              }
              limit_descriptors(next_descriptor() + 1, next_descriptor() + 1);
              int status = 1;
              waitpid(peer, &status, 0);
              return status == 0 ? 0 : 1;
            }),
            0);
}

/// An owner of the segment that is a process of its own, with a forked child.
class Owner {
 public:
  Owner() {
    std::array<int, 2> ends{};
    if (pipe(ends.data()) != 0) return;
    const UniqueFd out(ends[0]), in(ends[1]);
    pid_ = fork();
    if (pid_ == 0) run(in);
    std::tuple<SegmentHandle, pid_t> told;
    EXPECT_EQ(read(out.get(), &told, sizeof told), sizeof told);
    std::tie(node_, child_) = told;
  }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
  ~Owner() {
    end();
    kill(child_, SIGKILL);
  }
  void stop() const {
    kill(pid_, SIGSTOP);
    waitpid(pid_, nullptr, WUNTRACED);
  }
  void go_on() const { kill(pid_, SIGCONT); }
  void end() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }
  Result<UniqueFd> ask(const Patience& patience) const {
    return ask_for_window(node_, 0, node_.memory, patience);
  }
  pid_t pid() const { return pid_; }

 private:
  [[noreturn]] static void run(const UniqueFd& in) {
    constexpr unsigned longest = 50;
    alarm(longest);
    const auto segment = NodeSegment::create(spec_of(2));
    const auto hands = HandOver::start(*segment, 0);
    const pid_t child = fork();
    if (child == 0) alarm(longest);
    const std::tuple<SegmentHandle, pid_t> told{segment->handle(), child};
    if (child > 0 && write(in.get(), &told, sizeof told) != sizeof told) _exit(1);
    while (true) pause();
  }

  SegmentHandle node_;
  pid_t pid_ = 0, child_ = 0;
};

TEST(OwnerOfMemory, IsGivenTheTimeThatItsPeersHave) {
  Owner owner;
  owner.stop();
  const auto handed = owner.ask({0.2});
  EXPECT_EQ(handed.status().code(), Code::remote_error);
  EXPECT_EQ(handed.status().reason(), Reason::timeout);
  EXPECT_EQ(handed.status().message(),
            fmt::format("local rank 0, process {}, has not answered within 0.2 seconds", owner.pid()));
}

TEST(OwnerOfMemory, IsNotWaitedForWhenItsPeerIsToStop) {
  Owner owner;
  owner.stop();
  int looks = 0;
  const auto handed = owner.ask(
      {40, [&looks]() -> Status { return ++looks < 10 ? Status() : error(Code::remote_error, "stop"); }});
  EXPECT_EQ(handed.status().message(), "stop");
}

// As a profiler's timer sends them.
TEST(OwnerOfMemory, IsWaitedForThroughSignals) {
  Owner owner;
  owner.stop();
  EXPECT_EQ(exit_of_child([&] {
              struct sigaction counted {};
              counted.sa_handler = [](int) {};
              counted.sa_flags = SA_RESTART;
              sigaction(SIGALRM, &counted, nullptr);
              const itimerval often{{0, 2000}, {0, 2000}};
              setitimer(ITIMER_REAL, &often, nullptr);
              const double until = now_seconds() + 0.3;
              const auto handed = owner.ask({40, [&]() -> Status {
                                               if (now_seconds() >= until) owner.go_on();
                                               return {};
                                             }});
              return handed.ok() ? 0 : 1;
            }),
            0);
}

// Its forked child has the name no longer.
TEST(OwnerOfMemory, IsKnownToBeGone) {
  Owner owner;
  EXPECT_TRUE(owner.ask({40}).ok());
  owner.end();
  const auto handed = owner.ask({40});
  EXPECT_EQ(handed.status().code(), Code::remote_error);
  EXPECT_NE(handed.status().message().find("is gone"), std::string::npos) << handed.status().message();
}

// Many connect at once, and one that says nothing is no obstacle.
TEST_F(HandingOver, ServesAllOfANode) {
  const auto one_that_says_nothing = silent(segment_.handle(), 1);
  std::vector<pid_t> children;
  for (int peer = 0; peer < 40; ++peer) {
    children.push_back(fork());
    if (children.back() == 0) {
      for (int i = 0; i < 20; ++i)
        if (!ask_for_window(segment_.handle(), 0, place_).ok()) _exit(1);
      _exit(0);
    }
  }
  for (const pid_t child : children) {
    int status = 1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

TEST(PeersOfANode, MayReadEachOtherAndNotWrite) {
  Node node(2);
  EXPECT_TRUE(node[0].can_read_peers());
  for (const uint32_t call : {uint32_t{SYS_process_vm_readv}, uint32_t{SYS_process_vm_writev}})
    EXPECT_EQ(exit_of_child([&] {
                tests::refuse_calls({call});
                return node[0].can_read_peers() ? 1 : 0;
              }),
              0)
        << call;
}

/// The second rank of a node whose first is this process: `before` it opens.
int second_rank(const NodeSegment& segment, const std::function<bool()>& before,
                const std::function<bool(NodeMemory&)>& find) {
  constexpr int not_permitted = 77;
  return exit_of_child([&] {
    if (!before()) return not_permitted;
    auto attached = NodeSegment::attach(spec_of(2), segment.handle());
    if (!attached.ok()) return 2;
    const auto memory = NodeMemory::open(std::move(attached).value(), 1);
    return memory.ok() && find(**memory) ? 0 : 1;
  });
}

TEST(PeersOfANode, FindThatTheyMayOpenEachOthers) {
  auto segment = NodeSegment::create(spec_of(2));
  ASSERT_TRUE(segment.ok());
  auto again = NodeSegment::attach(spec_of(2), segment->handle());
  ASSERT_TRUE(again.ok());
  const auto first = NodeMemory::open(std::move(again).value(), 0);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(second_rank(
                *segment, [] { return true; },
                [](NodeMemory& memory) { return memory.can_open_peers() && memory.beyond_bells() < 0; }),
            0);
  EXPECT_EQ(second_rank(
                *segment, [] { return true; },
                [](NodeMemory& memory) {
                  memory.note_handed_segment();
                  return !memory.can_open_peers();
                }),
            0);
}

TEST(PeersOfANode, FindThatADoorbellDoesNotRingInTheirNetworkNamespace) {
  auto segment = NodeSegment::create(spec_of(2));
  ASSERT_TRUE(segment.ok());
  auto again = NodeSegment::attach(spec_of(2), segment->handle());
  ASSERT_TRUE(again.ok());
  const auto first = NodeMemory::open(std::move(again).value(), 0);
  ASSERT_TRUE(first.ok());
  const int found = second_rank(
      *segment, [] { return unshare(CLONE_NEWNET) == 0; },
      [](NodeMemory& memory) { return memory.beyond_bells() == 0; });
  if (found == 77) GTEST_SKIP() << "no network namespace of one's own can be had here";
  EXPECT_EQ(found, 0);
}

TEST(PeersOfANode, AreOfOnePidNamespace) {
  auto segment = NodeSegment::create(spec_of(2));
  ASSERT_TRUE(segment.ok());
  SegmentHandle handle = segment->handle();
  ++handle.pid_namespace;
  const std::string said = NodeSegment::attach(spec_of(2), handle).take_status().message();
  EXPECT_NE(said.find("is in another PID namespace"), std::string::npos) << said;
  EXPECT_NE(said.find("EPCCL_HOSTID"), std::string::npos) << said;
}

// As where two containers have processes of the same number.
TEST(PeersOfANode, WhoseDescriptorsAreNotThereMayBeOfAnotherPidNamespace) {
  auto segment = NodeSegment::create(spec_of(2));
  ASSERT_TRUE(segment.ok());
  SegmentHandle handle = segment->handle();
  handle.memory.fd = 9999;
  const std::string said = NodeSegment::attach(spec_of(2), handle).take_status().message();
  EXPECT_NE(said.find("another PID namespace"), std::string::npos) << said;
}

TEST(DescriptorsOfWindows, MayBeMoreThanTheSoftLimit) {
  EXPECT_EQ(exit_of_child([] {
              limit_descriptors(40, 400);
              for (int i = 0; i < 200; ++i)
                if (!device::allocate_window(4096).ok()) return 1;
              limit_descriptors(next_descriptor(), 400);
              return NodeSegment::create(spec_of(2)).ok() ? 0 : 2;
            }),
            0);
}

TEST(DescriptorsOfWindows, ThatAreNotToBeHadNameTheLimit) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "sanitizers look at memory by descriptors of their own";
#endif
  EXPECT_EQ(exit_of_child([] {
              limit_descriptors(40, 40);
              Result<void*> made = nullptr;
              for (int i = 0; i < 50 && made.ok(); ++i) made = device::allocate_window(4096);
              const bool named =
                  made.status().message().find("RLIMIT_NOFILE of this process is 40") != std::string::npos;
              return named ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace epccl::transports
