// Host memory that other processes of the node can map: epcclMemAlloc. Each allocation is a memfd, so that nothing has a
// name in the file system and everything is gone with the last process that maps it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::device {

/// How another process finds a window: /proc/<pid>/fd/<fd>, checked by inode, since descriptors are reused.
struct WindowRef {
  int32_t pid = 0;
  int32_t fd = -1;
  uint64_t inode = 0;
  uint64_t size = 0;    // of the whole window
  uint64_t offset = 0;  // of the address that was looked up
};

/// Page-aligned, zeroed, `size` > 0 bytes, mappable by peers.
Result<void*> allocate_window(size_t size);

/// Frees what allocate_window() returned, also where peers still map it; anything else is an error and is left alone.
Status free_window(void* address);

/// The window that holds all of [address, address + size), if one does. Any thread.
std::optional<WindowRef> find_window(const void* address, size_t size);

/// How many windows have been freed so far: who keeps something for a window looks whether it is still there when this has changed.
uint64_t windows_freed();

/// What a mapping brings in at once: everything, where all of it will be used; or pages as they are touched.
enum class Pages : uint8_t { all, as_touched };

/// Another process's window, through /proc: who may not look into that process may not.
Result<UniqueFd> open_window(const WindowRef& ref);
/// That it is this one, and still is.
Status check_window(const UniqueFd& window, const WindowRef& ref);
/// Maps what open_window() opened into this process, all of it, read and write; unmap with munmap(address, ref.size).
Result<std::byte*> map_window(const UniqueFd& window, const WindowRef& ref, Pages pages);
/// Opens it, too.
Result<std::byte*> map_window(const WindowRef& ref, Pages pages);

/// Whether this is a window of this process. If so it is not freed before `use()`, which hands its descriptor to who may not open it, returns.
bool is_window_during(int32_t fd, uint64_t inode, const std::function<void()>& use);

}  // namespace epccl::device
