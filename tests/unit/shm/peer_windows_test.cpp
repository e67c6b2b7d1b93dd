// Windows that are mapped again and again, more of them than are kept, and freed ones.
#include "transports/shm/peer_windows.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace epccl::transports {
namespace {

constexpr size_t window_bytes = 64 << 10;

/// Allocated by this process, which maps it a second time, as a peer does.
class Window {
 public:
  explicit Window(size_t bytes = window_bytes)
      : address_(static_cast<char*>(device::allocate_window(bytes).value())),
        place_(device::find_window(address_, bytes).value()) {}
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;
  ~Window() {
    if (address_ != nullptr) free();
  }
  void free() { EXPECT_TRUE(device::free_window(std::exchange(address_, nullptr)).ok()); }
  char* address() { return address_; }
  const device::WindowRef& place() const { return place_; }
  /// That the kernel has given it.
  uint64_t memory(const device::WindowRef& place) const {
    struct stat info {};
    const std::string path = "/proc/self/fd/" + std::to_string(place.fd);
    EXPECT_EQ(stat(path.c_str(), &info), 0);
    return static_cast<uint64_t>(info.st_blocks) * 512;
  }

 private:
  char* address_;
  device::WindowRef place_;
};

char* mapped(PeerWindows& windows, const Window& window, uint64_t bytes = window_bytes) {
  auto address = windows.address_of(window.place(), bytes);
  EXPECT_TRUE(address.ok()) << address.status().message();
  return reinterpret_cast<char*>(*address);
}

bool is_mapped(char* address) {
  return msync(address, window_bytes, MS_ASYNC) == 0;
}

TEST(PeerWindows, AreMappedOnceAsLongAsTheyAreNotTooMany) {
  constexpr size_t count = 200;
  PeerWindows windows(count);
  std::vector<std::unique_ptr<Window>> all;
  std::vector<char*> places;
  for (size_t i = 0; i < count; ++i) {
    all.push_back(std::make_unique<Window>());
    places.push_back(mapped(windows, *all.back()));
    std::strcpy(all.back()->address(), std::to_string(i).c_str());
  }
  EXPECT_EQ(std::set<char*>(places.begin(), places.end()).size(), count);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_EQ(mapped(windows, *all[i]), places[i]);
    EXPECT_EQ(places[i], std::to_string(i));
  }
}

TEST(PeerWindows, ThatWereNotUsedForLongestGiveWay) {
  PeerWindows windows(3);
  Window a, b, c, d;
  char* const of_a = mapped(windows, a);
  char* const of_b = mapped(windows, b);
  char* const of_c = mapped(windows, c);
  EXPECT_EQ(mapped(windows, a), of_a);
  EXPECT_TRUE(is_mapped(of_b));
  char* const of_d = mapped(windows, d);
  EXPECT_FALSE(is_mapped(of_b));
  EXPECT_EQ(mapped(windows, a), of_a);
  EXPECT_EQ(mapped(windows, c), of_c);
  EXPECT_EQ(mapped(windows, d), of_d);
}

TEST(PeerWindows, GiveWayWhereTheProcessHasNoMappingLeft) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a process that gives it no mapping";
#endif
  PeerWindows windows(100);
  std::vector<std::unique_ptr<Window>> made;
  for (int i = 0; i < 40; ++i) made.push_back(std::make_unique<Window>());
  for (int i = 0; i < 30; ++i) mapped(windows, *made[static_cast<size_t>(i)]);
  // Two neighbours with other rights are no single mapping.
  std::vector<void*> others;
  others.reserve(1 << 18);
  for (int i = 0; i < 1 << 18; ++i) {
    void* const page =
        mmap(nullptr, 4096, i % 2 == 0 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) break;
    others.push_back(page);
  }
  const bool is_full = others.size() < 1 << 18;
  const auto address = windows.address_of(made[35]->place(), window_bytes);
  for (void* const page : others) munmap(page, 4096);
  if (!is_full) GTEST_SKIP() << "this machine lets a process have more mappings than the test makes";
  ASSERT_TRUE(address.ok()) << address.status().message();
  EXPECT_TRUE(is_mapped(reinterpret_cast<char*>(*address)));
}

TEST(PeerWindows, GiveTheirMemoryBackWhenTheirOwnerFreesThem) {
  PeerWindows windows(3);
  Window window;
  char* const here = mapped(windows, window);
  std::memset(window.address(), 7, window_bytes);
  EXPECT_EQ(here[100], 7);
  const int kept = dup(window.place().fd);
  struct stat info {};
  ASSERT_EQ(fstat(kept, &info), 0);
  EXPECT_GE(static_cast<size_t>(info.st_blocks) * 512, window_bytes);
  window.free();
  ASSERT_EQ(fstat(kept, &info), 0);
  EXPECT_EQ(info.st_blocks, 0);
  EXPECT_EQ(here[100], 0);  // late, but not fatal
  close(kept);
}

// As the objects of a program do that were there when it forked.
TEST(PeerWindows, KeepTheirMemoryWhenAForkedChildFreesThem) {
  Window window;
  std::strcpy(window.address(), "the parent's");
  const pid_t child = fork();
  if (child == 0) _exit(device::free_window(window.address()).ok() ? 0 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(window.address(), "the parent's");
}

// An arena of which a call uses a little is not made whole by that.
TEST(PeerWindows, BringInNoMoreOfALargeWindowThanIsUsed) {
  constexpr size_t large = 256 << 20;
  PeerWindows windows(3);
  Window window(large);
  char* const here = mapped(windows, window, 1000);
  window.address()[10] = 5;
  EXPECT_EQ(here[10], 5);
  EXPECT_LE(window.memory(window.place()), large / 8);
}

}  // namespace
}  // namespace epccl::transports
