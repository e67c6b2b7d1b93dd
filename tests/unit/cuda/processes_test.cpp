// Memory of a GPU shared by two processes.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <optional>

#include "../base/environment.hpp"
#include "device/cuda/allocation.hpp"
#include "device/held_streams.hpp"
#include "fake_driver.hpp"
#include "gpu.hpp"
#include "peer.hpp"

namespace epccl::device::test {
namespace {

using ::testing::HasSubstr;

class CudaProcesses : public ::testing::TestWithParam<const char*> {
 protected:
  CudaProcesses() { environment_.set("EPCCL_CUDA_SHARE", GetParam()); }
  ~CudaProcesses() override { EXPECT_EQ(fake_cuda_live("imports"), 0); }
  static std::unique_ptr<MappedMemory> map(const MemoryHandle& handle) {
    return take(gpu().import_memory(handle));
  }
  epccl::test::Environment environment_;
};

TEST_P(CudaProcesses, ReadEachOther) {
  Peer peer;
  const auto mapped = map(peer.allocate(100'000, 7));
  EXPECT_EQ(mapped->bytes(), 100'000U);
  EXPECT_EQ(get(mapped->data(), 100'000), numbers(100'000, 7));
  const GpuMemory mine(5000, MemoryKind::shareable);
  const auto bytes = numbers(5000, 8);
  put(mine.data(), bytes);
  EXPECT_EQ(peer.read(*gpu().export_memory(mine.data() + 100, 4900), 4900),
            std::vector<std::byte>(bytes.begin() + 100, bytes.end()));
}

TEST_P(CudaProcesses, WriteIntoEachOther) {
  Peer peer;
  const GpuMemory mine(5000, MemoryKind::shareable);
  peer.write(*gpu().export_memory(mine.data(), 5000), 5000, 9);
  EXPECT_EQ(get(mine.data(), 5000), numbers(5000, 9));
}

TEST_P(CudaProcesses, MapAnAllocationOnceHoweverOftenItIsAskedFor) {
  Peer peer;
  const MemoryHandle handle = peer.allocate(1000, 1);
  MemoryHandle later = handle;
  later.offset = 10;
  const auto first = map(handle), second = map(later);
  EXPECT_EQ(second->data(), first->data() + 10);
  EXPECT_EQ(fake_cuda_live("imports"), 1);
}

// Handlers have calls restarted here, which those with a time limit are not.
TEST_P(CudaProcesses, MapEachOthersMemoryWhateverSignalsCome) {
  Peer peer;
  const MemoryHandle theirs = peer.allocate(1000, 5);
  const GpuMemory mine(5000, MemoryKind::shareable);
  const MemoryHandle handle = *gpu().export_memory(mine.data(), 5000);
  struct sigaction handles {
  }, before{};
  handles.sa_handler = [](int) {};
  handles.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &handles, &before);
  const itimerval often{{0, 20}, {0, 20}}, never{};
  setitimer(ITIMER_REAL, &often, nullptr);
  for (int round = 0; round < 300; ++round) {
    const auto mapped = gpu().import_memory(theirs);
    EXPECT_TRUE(mapped.ok()) << mapped.status().message();
    if (!mapped.ok()) break;
    EXPECT_NO_THROW(peer.write(handle, 5000, 9));
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
}

TEST_P(CudaProcesses, SurviveThePeersDeathWhileItsMemoryIsMapped) {
  Peer peer;
  const auto mapped = map(peer.allocate(1000, 3));
  peer.kill();
  EXPECT_EQ(get(mapped->data(), 1000), numbers(1000, 3));
}

TEST_P(CudaProcesses, SayThatAPeerIsGone) {
  Peer peer;
  const MemoryHandle handle = peer.allocate(1000, 3);
  peer.kill();
  const auto mapped = gpu().import_memory(handle);
  ASSERT_FALSE(mapped.ok());
  EXPECT_THAT(mapped.status().message(),
              HasSubstr(fmt::format("mapping 1000 bytes of GPU 0 of process {}", handle.pid)));
}

TEST_P(CudaProcesses, SayThatMemoryWasFreed) {
  Peer peer;
  const MemoryHandle handle = peer.allocate(1000, 3);
  peer.free();
  EXPECT_FALSE(gpu().import_memory(handle).ok());
}

/// As many descriptors as this process has, and `more`; for the length of a scope.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    const UniqueFd next(::dup(STDIN_FILENO));
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{static_cast<rlim_t>(next.get() + more), before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(CudaDescriptors, ThatThisProcessHasNoRoomForAreSaidToBeTooMany) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's checks of objects need descriptors, too";
#endif
  Peer peer;
  const MemoryHandle handle = peer.allocate(1000, 3);
  gpu();
  const FewDescriptors for_the_socket(1);
  EXPECT_THAT(gpu().import_memory(handle).status().message(), HasSubstr("as many as it may (ulimit -n)"));
}

TEST_P(CudaProcesses, KnowANewAllocationAtAnOldAddress) {
  Peer peer;
  const MemoryHandle old_handle = peer.allocate(1000, 3);
  const auto old_mapping = map(old_handle);
  peer.free();
  const MemoryHandle handle = peer.allocate(1000, 4);
  EXPECT_EQ(handle.base, old_handle.base);
  EXPECT_EQ(get(map(handle)->data(), 1000), numbers(1000, 4));
}

TEST_P(CudaProcesses, KnowANewAllocationWhereTheMappingOfTheOldOneHasNotEndedYet) {
  fake_cuda_set("reuse", 1);
  Peer peer;
  std::optional<HeldStreams::Hold> held(std::in_place);
  { const auto old_mapping = map(peer.allocate(1000, 3)); }
  peer.free();
  const auto mapping = map(peer.allocate(1000, 4));
  EXPECT_EQ(get(mapping->data(), 1000), numbers(1000, 4));
  held.reset();
  EXPECT_EQ(fake_cuda_live("imports"), 1) << "what ends late is the old one alone";
  EXPECT_EQ(get(mapping->data(), 1000), numbers(1000, 4));
  fake_cuda_set("reuse", 0);
}

/// As the next handle that its owner gives, of whatever memory, would say that this one's memory was freed.
MemoryHandle news_of_the_end(const MemoryHandle& handle, uint64_t frees_beside = 0) {
  MemoryHandle news = handle;
  if (frees_beside == 0) news.freed[news.frees % news.freed.size()] = handle.generation;
  news.frees += 1 + frees_beside;
  return news;
}

class CudaFrees : public CudaProcesses {};
INSTANTIATE_TEST_SUITE_P(By, CudaFrees, ::testing::Values("ipc"),
                         [](const auto& share) { return share.param; });

TEST_P(CudaFrees, AreClosedWhenTheDriverHasClosedThem) {
  Peer peer;
  const MemoryHandle handle = peer.allocate(1000, 1);
  auto mapped = map(handle), again = map(handle);
  EXPECT_TRUE(gpu().has_closed_what_was_freed(handle));
  gpu().hear_of_frees(news_of_the_end(handle), {});
  EXPECT_FALSE(gpu().has_closed_what_was_freed(handle));
  std::optional<HeldStreams::Hold> held(std::in_place);
  mapped.reset();
  again.reset();
  EXPECT_FALSE(gpu().has_closed_what_was_freed(handle)) << "put off";
  held.reset();
  EXPECT_TRUE(gpu().has_closed_what_was_freed(handle));
}

TEST_P(CudaFrees, OfOthersKeepNobodyWaiting) {
  Peer peer, other;
  const MemoryHandle handle = peer.allocate(1000, 1), beside = peer.allocate(1000, 2),
                     theirs = other.allocate(1000, 3);
  const auto mapped = map(handle), of_other = map(theirs);
  gpu().hear_of_frees(news_of_the_end(beside), {});
  EXPECT_TRUE(gpu().has_closed_what_was_freed(handle)) << "it was never open here";
  gpu().hear_of_frees(news_of_the_end(theirs), {});
  EXPECT_TRUE(gpu().has_closed_what_was_freed(handle));
  EXPECT_FALSE(gpu().has_closed_what_was_freed(theirs));
}

TEST_P(CudaFrees, ThatHandlesDoNotNameMayBeOfAllThatIsOpenButForWhatTheyBring) {
  Peer peer;
  const MemoryHandle handle = peer.allocate(1000, 1), used = peer.allocate(1000, 2);
  auto mapped = map(handle);
  const auto used_still = map(used);
  const MemoryHandle* const alive[] = {&used};
  gpu().hear_of_frees(news_of_the_end(used, used.freed.size()), alive);
  EXPECT_FALSE(gpu().has_closed_what_was_freed(handle));
  mapped.reset();
  EXPECT_TRUE(gpu().has_closed_what_was_freed(handle));
  mapped = map(handle);
  EXPECT_TRUE(gpu().has_closed_what_was_freed(handle))
      << "of what is opened now nobody has said that it was freed";
}

/// Descriptors of this process that `is_meant`.
template <typename IsMeant>
int count_descriptors(const IsMeant& is_meant) {
  constexpr int most = 1024;
  int count = 0;
  for (int fd = 0; fd < most; ++fd)
    if (is_meant(fd)) ++count;
  return count;
}

// Else what the parent frees would stay until its last child, a worker that loads data, ends.
TEST(CudaForkedChild, HoldsNothingThatItsParentSharesAndDoesNotAnswerForIt) {
  const GpuMemory memory(5000, MemoryKind::shareable);
  const MemoryHandle handle = *gpu().export_memory(memory.data(), 1);
  cuda::SharedDescriptor shared;
  std::memcpy(&shared, handle.opaque.data(), sizeof shared);
  const auto inode_of = [](int fd) {
    struct stat info {};
    return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
  };
  const auto inode = inode_of(take(cuda::fetch_descriptor(shared.ticket)).get());
  const auto of_memory = [&] { return count_descriptors([&](int fd) { return inode_of(fd) == inode; }); };
  const auto listening = [] {
    return count_descriptors([](int fd) {
      int accepts = 0;
      socklen_t size = sizeof accepts;
      return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && accepts != 0;
    });
  };
  const int here = of_memory();
  EXPECT_EQ(here, 2) << "what is shared, and the double's own";
  EXPECT_EQ(listening(), 1);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(of_memory() == here - 1 && listening() == 0 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_P(CudaProcesses, RefuseNonsense) {
  MemoryHandle handle;
  handle.device = DeviceKind::cuda;
  handle.form = 9;
  EXPECT_THAT(gpu().import_memory(handle).status().message(), HasSubstr("unknown form 9"));
  handle.form = 0;
  handle.offset = 1;
  EXPECT_FALSE(gpu().import_memory(handle).ok());
  handle.offset = 0;
  EXPECT_FALSE(gpu().import_memory(handle).ok());
  handle.device = DeviceKind::host;
  EXPECT_THAT(gpu().import_memory(handle).status().message(), HasSubstr("of the host device"));
}

INSTANTIATE_TEST_SUITE_P(By, CudaProcesses, ::testing::Values("descriptor", "ipc"),
                         [](const auto& by) { return std::string(by.param); });

}  // namespace
}  // namespace epccl::device::test
