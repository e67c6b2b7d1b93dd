#include "device/host/host_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/descriptor_limit.hpp"
#include "base/file_size.hpp"
#include "base/fork_safe.hpp"
#include "base/per_process.hpp"

namespace epccl::device {
namespace {

struct Window {
  UniqueFd fd;
  uint64_t inode = 0;
  size_t size = 0;
  pid_t owner = getpid();  // a forked child shares the memory
};

struct Registry {
  ForkSafe<std::shared_mutex> mutex;
  std::atomic<uint64_t> freed = 0;
  std::map<uintptr_t, Window> windows;
};

// Never destroyed: windows may be freed by static destructors of the application.
Registry& registry() {
  static auto* instance = new Registry;  // NOLINT(cppcoreguidelines-owning-memory)
  return *instance;
}

struct ThisProcess {
  pid_t id = getpid();
};

// A system call less. In a forked child it is another one.
pid_t this_process() {
  static PerProcess<ThisProcess> instance;
  return instance->id;
}

// A container without a /proc of its own has that of the processes around it.
bool proc_is_of_others() {
  char self[32] = {};
  return readlink("/proc/self", self, sizeof self - 1) > 0 && fmt::format("{}", getpid()) != self;
}

// The kernel shows a process's descriptors to those that might trace it. (Yama, which asks who is whose parent, has no part in that.)
std::string why_not_opened(pid_t owner, int cause) {
  const std::string process = fmt::format("/proc/{}", owner);
  if (proc_is_of_others())
    return " (/proc shows the processes of another PID namespace than this one's: mount -t proc proc /proc)";
  if (cause == ENOENT && access(process.c_str(), F_OK) != 0)
    return fmt::format(
        " (there is no {}: that process has ended, or has another PID namespace, or a /proc mounted with "
        "hidepid "
        "hides it)",
        process);
  if (cause == ENOENT)
    return fmt::format(
        " (process {} has no such descriptor: another PID namespace's, or freed while in use?)", owner);
  if (cause != EACCES && cause != EPERM) return "";
  return fmt::format(
      " (process {} may not be looked into by this one: it is another user's, or in another user namespace, "
      "or "
      "has capabilities that this one has not, or is not dumpable, as programs are that are setuid or have "
      "file "
      "capabilities, or /proc is hardened)",
      owner);
}

std::string proc_path(const WindowRef& ref) {
  return fmt::format("/proc/{}/fd/{}", ref.pid, ref.fd);
}

}  // namespace

Result<void*> allocate_window(size_t size) {
  UniqueFd fd = open_within_limit([] { return memfd_create("epccl-window", MFD_CLOEXEC); });
  if (!fd) return descriptor_error(errno, fmt::format("memfd_create for {} bytes", size));
  EPCCL_TRY(set_file_size(fd.get(), size, "memory for peers to map"));
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return system_error(errno, "fstat of a memfd");
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return system_error(errno, fmt::format("mmap of {} bytes", size));
  madvise(address, size, MADV_HUGEPAGE);  // a wish: not every kernel has huge pages for shared memory
  const std::unique_lock lock(registry().mutex);
  registry().windows.emplace(reinterpret_cast<uintptr_t>(address), Window{std::move(fd), info.st_ino, size});
  return address;
}

Status free_window(void* address) {
  Window window;
  {
    const std::unique_lock lock(registry().mutex);
    auto taken = registry().windows.extract(reinterpret_cast<uintptr_t>(address));
    if (taken.empty())
      return error(Code::invalid_argument, "{} was not returned by epcclMemAlloc, or is freed already",
                   address);
    window = std::move(taken.mapped());
    registry().freed.fetch_add(1, std::memory_order_release);
  }
  // While others may look up, since much memory takes long. No other window can have this address before it is unmapped.
  // Peers may keep it mapped, but not its memory: whoever still uses it finds zeros.
  if (window.owner == getpid())
    fallocate(window.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(window.size));
  munmap(address, window.size);
  return {};
}

uint64_t windows_freed() {
  return registry().freed.load(std::memory_order_acquire);
}

std::optional<WindowRef> find_window(const void* address, size_t size) {
  const auto start = reinterpret_cast<uintptr_t>(address);
  const std::shared_lock lock(registry().mutex);
  auto it = registry().windows.upper_bound(start);
  if (it == registry().windows.begin()) return std::nullopt;
  --it;
  const auto& [base, window] = *it;
  const uint64_t offset = start - base;
  if (offset > window.size || size > window.size - offset) return std::nullopt;
  return WindowRef{this_process(), window.fd.get(), window.inode, window.size, offset};
}

Result<UniqueFd> open_window(const WindowRef& ref) {
  const std::string path = proc_path(ref);
  UniqueFd window = open_within_limit([&] { return open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (!window) {
    const int cause = errno;
    return descriptor_error(cause, "open of " + path + why_not_opened(ref.pid, cause));
  }
  EPCCL_TRY(check_window(window, ref));
  return window;
}

Status check_window(const UniqueFd& window, const WindowRef& ref) {
  struct stat info {};
  if (fstat(window.get(), &info) != 0) return system_error(errno, "fstat of " + proc_path(ref));
  if (info.st_ino != ref.inode || static_cast<uint64_t>(info.st_size) < ref.size)
    return error(Code::remote_error, "{} is not the window it was: freed while in use?", proc_path(ref));
  return {};
}

Result<std::byte*> map_window(const UniqueFd& window, const WindowRef& ref, Pages pages) {
  const int flags = pages == Pages::all ? MAP_SHARED | MAP_POPULATE : MAP_SHARED;
  void* address = mmap(nullptr, ref.size, PROT_READ | PROT_WRITE, flags, window.get(), 0);
  if (address == MAP_FAILED)
    return system_error(errno, fmt::format("mmap of {} bytes of {}", ref.size, proc_path(ref)));
  return static_cast<std::byte*>(address);
}

Result<std::byte*> map_window(const WindowRef& ref, Pages pages) {
  EPCCL_ASSIGN(const UniqueFd window, open_window(ref));
  return map_window(window, ref, pages);
}

// A copy of the descriptor would be one more, where there may be none left.
bool is_window_during(int32_t fd, uint64_t inode, const std::function<void()>& use) {
  const std::shared_lock lock(registry().mutex);
  const bool is_window = std::ranges::any_of(registry().windows, [&](const auto& entry) {
    return entry.second.fd.get() == fd && entry.second.inode == inode;
  });
  if (is_window) use();
  return is_window;
}

}  // namespace epccl::device
