#include "device/host/host_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "base/file_size.hpp"
#include "base/per_process.hpp"
#include "base/unique_fd.hpp"

namespace epccl::device {
namespace {

struct Window {
  UniqueFd fd;
  uint64_t inode = 0;
  size_t size = 0;
  pid_t owner = getpid();  // a forked child shares the memory
};

struct Registry {
  std::shared_mutex mutex;
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

// The kernel shows a process's descriptors to those that might trace it. (Yama, which asks who is whose parent, has no part in that.)
std::string why_not_opened(pid_t owner, int cause) {
  const std::string process = fmt::format("/proc/{}", owner);
  if (cause == ENOENT && access(process.c_str(), F_OK) != 0)
    return fmt::format(
        " (there is no {}: that process has ended, or has another PID namespace, or a /proc mounted with "
        "hidepid "
        "hides it)",
        process);
  if (cause != EACCES && cause != EPERM) return "";
  return fmt::format(
      " (process {} may not be looked into by this one: it is another user's, or not dumpable, as programs "
      "are "
      "that are setuid or have file capabilities, or /proc is hardened)",
      owner);
}

}  // namespace

Result<void*> allocate_window(size_t size) {
  UniqueFd fd(memfd_create("epccl-window", MFD_CLOEXEC));
  if (!fd) return system_error(errno, fmt::format("memfd_create for {} bytes", size));
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
  const std::unique_lock lock(registry().mutex);
  const auto it = registry().windows.find(reinterpret_cast<uintptr_t>(address));
  if (it == registry().windows.end())
    return error(Code::invalid_argument, "{} was not returned by epcclMemAlloc, or is freed already",
                 address);
  // Peers may keep it mapped, but not its memory: whoever still uses it finds zeros.
  if (it->second.owner == getpid())
    fallocate(it->second.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
              static_cast<off_t>(it->second.size));
  munmap(address, it->second.size);
  registry().windows.erase(it);
  registry().freed.fetch_add(1, std::memory_order_release);
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

Result<std::byte*> map_window(const WindowRef& ref, Pages pages) {
  const std::string path = fmt::format("/proc/{}/fd/{}", ref.pid, ref.fd);
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) {
    const int cause = errno;
    return system_error(cause, "open of " + path + why_not_opened(ref.pid, cause));
  }
  struct stat info {};
  if (fstat(fd.get(), &info) != 0) return system_error(errno, "fstat of " + path);
  if (info.st_ino != ref.inode || static_cast<uint64_t>(info.st_size) < ref.size)
    return error(Code::remote_error, "{} is not the window it was: freed while in use?", path);
  const int flags = pages == Pages::all ? MAP_SHARED | MAP_POPULATE : MAP_SHARED;
  void* address = mmap(nullptr, ref.size, PROT_READ | PROT_WRITE, flags, fd.get(), 0);
  if (address == MAP_FAILED)
    return system_error(errno, fmt::format("mmap of {} bytes of {}", ref.size, path));
  return static_cast<std::byte*>(address);
}

}  // namespace epccl::device
