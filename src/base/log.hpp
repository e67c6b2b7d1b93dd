// Logging: EPCCL_DEBUG=NONE|VERSION|WARN|INFO|TRACE (unset: NCCL_DEBUG, with NCCL_DEBUG_SUBSYS), EPCCL_DEBUG_SUBSYS=INIT,NET,..., EPCCL_DEBUG_FILE=path with
// %h (host) and %p (pid). Nothing is printed unless asked for; one line per message, written in one call.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace epccl::log {

enum class Level : int { none = 0, version = 1, warn = 2, info = 3, trace = 4 };

/// Bits of EPCCL_DEBUG_SUBSYS.
enum Subsys : uint32_t {
  init = 1u << 0,  // bootstrap, communicators
  topo = 1u << 1,  // discovery
  coll = 1u << 2,  // collectives: chosen algorithm and transport
  net = 1u << 3,   // network transports
  shm = 1u << 4,   // intra-node transports
  plan = 1u << 5,  // plan building
  env = 1u << 6,   // configuration
  p2p = 1u << 7,   // send/recv
  all = 0xffffffffu
};

/// The settings: level in the upper half, subsystems in the lower; `unread` until they have been read.
struct Filter {
  static constexpr uint64_t unread = ~uint64_t{0};
  static std::atomic<uint64_t> value;
  static uint64_t read();
};

/// True when a message of this level and subsystem would be written. One load: cheap on hot paths. It acquires, so that who writes knows
/// the file that the settings name.
inline bool enabled(Level level, Subsys subsys) {
  uint64_t now = Filter::value.load(std::memory_order_acquire);
  if (now == Filter::unread) [[unlikely]]
    now = Filter::read();
  if (level == Level::none || static_cast<uint64_t>(level) > (now >> 32)) return false;
  return level <= Level::warn || (static_cast<uint32_t>(now) & subsys) != 0;
}

/// Writes one line: "host:pid [rank] LEVEL SUBSYS message". `rank` < 0 leaves the rank out.
void write(Level level, Subsys subsys, int rank, std::string_view message);

/// True: this rank of this process has not said the line yet, or so many others since that it was forgotten (some thousands are kept).
bool remember_line(int rank, std::string_view message);

/// Has the settings read again by the next line (they are at first use), and forgets what was said; for tests. Threads may be writing: a
/// file that lines went to stays open until they go to another.
void reload();
/// The same, and reads them here: in the thread of who has changed the environment.
void read_again();

template <typename... Args>
void info(Subsys subsys, int rank, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info, subsys))
    write(Level::info, subsys, rank, fmt::format(format, std::forward<Args>(args)...));
}
/// What each call says of itself: INFO the first time that a rank of this process says it, TRACE from then on.
template <typename... Args>
void info_once(Subsys subsys, int rank, fmt::format_string<Args...> format, Args&&... args) {
  if (!enabled(Level::info, subsys)) return;
  const std::string message = fmt::format(format, std::forward<Args>(args)...);
  const Level level = remember_line(rank, message) ? Level::info : Level::trace;
  if (enabled(level, subsys)) write(level, subsys, rank, message);
}
template <typename... Args>
void warn(Subsys subsys, int rank, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::warn, subsys))
    write(Level::warn, subsys, rank, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void trace(Subsys subsys, int rank, fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::trace, subsys))
    write(Level::trace, subsys, rank, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace epccl::log
