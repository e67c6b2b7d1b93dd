#include "base/log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/file_size.hpp"
#include "base/per_process.hpp"
#include "base/settings.hpp"
#include "base/unique_fd.hpp"

namespace epccl::log {
namespace {

constexpr std::pair<const char*, Subsys> subsystems[] = {{"INIT", init}, {"TOPO", topo}, {"COLL", coll},
                                                         {"NET", net},   {"SHM", shm},   {"PLAN", plan},
                                                         {"ENV", env},   {"P2P", p2p},   {"ALL", all}};
/// What NCCL calls otherwise, and what only it has something to say of.
constexpr std::pair<const char*, uint32_t> subsystems_of_nccl[] = {
    {"BOOTSTRAP", init}, {"GRAPH", topo}, {"TUNING", plan}, {"CALL", coll}, {"PROXY", net}, {"RAS", init},
    {"ALLOC", 0},        {"NVLS", 0},     {"REG", 0},       {"PROFILE", 0}, {"VERSION", 0}};
constexpr const char* level_names[] = {"NONE", "VERSION", "WARN", "INFO", "TRACE"};

// Nothing here has a destructor: threads may log while the process is ending.
constinit std::atomic<int> output{-1};  // -1: standard error
constinit int file = -1;                // that `output` is, was or will be; under reading()
const int standard_error_at_start = fcntl(STDERR_FILENO, F_GETFD);  // its flags; -1: there was none
constinit std::array<std::atomic<uint64_t>, 8192> said{};           // hashes of lines

/// Has none either. A forked child has its own: another thread of its parent may have been opening a file.
std::mutex& reading() {
  static PerProcess<std::mutex> mutex;
  return *mutex;
}

// When the library is loaded: no child finds another thread just making it.
[[maybe_unused]] const std::mutex& made_when_loaded = reading();

/// Where the program was started without one, or has closed it, its number may be that of any descriptor now. What a program directs its
/// standard error to is there for those whom it starts, too; what closes itself then is something else (UCX's descriptors, or CUDA's).
bool has_standard_error() {
  const int now = fcntl(STDERR_FILENO, F_GETFD);
  const bool closes_itself = (now & FD_CLOEXEC) != 0,
             did_at_start = (standard_error_at_start & FD_CLOEXEC) != 0;
  return standard_error_at_start >= 0 && now >= 0 && (!closes_itself || did_at_start);
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
           return (x >= 'a' && x <= 'z' ? x - 'a' + 'A' : x) == (y >= 'a' && y <= 'z' ? y - 'a' + 'A' : y);
         });
}

std::string host_name() {
  char buffer[256] = {};
  if (gethostname(buffer, sizeof buffer - 1) != 0) return "unknown";
  const std::string name(buffer);
  return name.substr(0, name.find('.'));
}

std::string expand(std::string_view pattern) {
  std::string path;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char next = pattern[i] == '%' && i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (next == 'h') path += host_name();
    if (next == 'p') path += std::to_string(getpid());
    if (next == '%') path += '%';
    if (next == 'h' || next == 'p' || next == '%') {
      ++i;
    } else {
      path += pattern[i];
    }
  }
  return path;
}

/// Nothing: it is none. `of_nccl`: NCCL's names, too.
std::optional<uint32_t> bits_of(std::string_view word, bool of_nccl) {
  for (const auto& [name, bit] : subsystems)
    if (equal_ignoring_case(word, name)) return bit;
  for (const auto& [name, bits] : subsystems_of_nccl)
    if (of_nccl && equal_ignoring_case(word, name)) return bits;
  return std::nullopt;
}

/// Bits for "INIT,COLL" or "^NET". Sets `wrong` to a word that is no subsystem.
uint32_t parse_subsystems(std::string_view text, bool of_nccl, std::string& wrong) {
  const bool inverted = text.starts_with('^');
  if (inverted) text.remove_prefix(1);
  uint32_t bits = 0;
  while (!text.empty()) {
    const auto comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    if (word.empty()) continue;
    const auto known = bits_of(word, of_nccl);
    bits |= known.value_or(0);
    if (!known) wrong = word;
  }
  return inverted ? ~bits : bits;
}

Level parse_level(std::string_view text, std::string& wrong) {
  for (int i = 0; i <= static_cast<int>(Level::trace); ++i) {
    if (equal_ignoring_case(text, level_names[i])) return static_cast<Level>(i);
  }
  wrong = text;
  return Level::warn;
}

/// That of EPCCL_DEBUG; where it is not set, of NCCL_DEBUG, whose levels it has, so that who loads this library in NCCL's place is
/// told what he is used to. Sets `wrong` to a value of EPCCL_DEBUG that is no level.
Level wanted_level(std::string& wrong) {
  if (const auto own = settings::get_explicit("EPCCL_DEBUG")) return parse_level(*own, wrong);
  const char* const of_nccl = std::getenv("NCCL_DEBUG");
  std::string unknown;
  const Level level = of_nccl != nullptr ? parse_level(of_nccl, unknown) : Level::none;
  return unknown.empty() ? level : Level::none;
}

/// That of EPCCL_DEBUG_SUBSYS; where neither it nor EPCCL_DEBUG is set, of NCCL_DEBUG_SUBSYS. Its file is none for us: NVIDIA's library,
/// where calls are passed on to it, writes that from the beginning, at places of its own.
uint32_t wanted_subsystems(std::string& wrong) {
  const char* const of_nccl = std::getenv("NCCL_DEBUG_SUBSYS");
  if (of_nccl == nullptr || settings::get_explicit("EPCCL_DEBUG") ||
      settings::get_explicit("EPCCL_DEBUG_SUBSYS"))
    return parse_subsystems(settings::get("EPCCL_DEBUG_SUBSYS"), false, wrong);
  std::string ignored;
  return parse_subsystems(of_nccl, true, ignored);
}

void open_output(Level level, std::string& problem) {
  const std::string pattern = settings::get("EPCCL_DEBUG_FILE");
  if (level == Level::none) return;
  if (pattern.empty()) return output.store(-1, std::memory_order_relaxed);
  const std::string path = expand(pattern);
  UniqueFd opened(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644));
  if (!opened) {
    problem = system_error(errno, fmt::format("EPCCL_DEBUG_FILE: opening {}", path)).message();
    return output.store(-1, std::memory_order_relaxed);
  }
  // Where settings are read again another thread may just be writing a line: the number stays a log's.
  if (file < 0 || dup3(opened.get(), file, O_CLOEXEC) != file) file = opened.release();
  output.store(file, std::memory_order_relaxed);
}

const char* name_of(Subsys subsys) {
  for (const auto& [name, bit] : subsystems) {
    if (bit == subsys) return name;
  }
  return "?";
}

}  // namespace

constinit std::atomic<uint64_t> Filter::value{Filter::unread};

uint64_t Filter::read() {
  const std::lock_guard lock(reading());
  if (const uint64_t present = value.load(std::memory_order_acquire); present != unread) return present;
  std::string wrong_level, wrong_subsystem, problem;
  const Level level = wanted_level(wrong_level);
  const uint32_t bits = wanted_subsystems(wrong_subsystem);
  open_output(level, problem);
  const uint64_t fresh = (static_cast<uint64_t>(level) << 32) | bits;
  value.store(fresh, std::memory_order_release);
  if (!wrong_level.empty())
    write(Level::warn, env, -1, fmt::format("EPCCL_DEBUG=\"{}\" is not a level: WARN is used", wrong_level));
  if (level != Level::none && !wrong_subsystem.empty())
    write(Level::warn, env, -1,
          fmt::format("EPCCL_DEBUG_SUBSYS: \"{}\" is not a subsystem", wrong_subsystem));
  if (!problem.empty()) write(Level::warn, env, -1, problem);
  return fresh;
}

void write(Level level, Subsys subsys, int rank, std::string_view message) {
  std::string line = fmt::format("{}:{} ", host_name(), getpid());
  if (rank >= 0) line += fmt::format("[{}] ", rank);
  line += fmt::format("{} {} ", level_names[static_cast<int>(level)], name_of(subsys));
  // A message may quote what a stranger sent: it stays one line, and free of terminal control.
  for (const char c : message) line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  line += '\n';

  const int named = output.load(std::memory_order_relaxed);
  if (named < 0 && !has_standard_error()) return;
  const int fd = named >= 0 ? named : STDERR_FILENO;
  const NoFileSizeSignal none;  // a full log ends no program
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // nowhere left to complain
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

// A line has a few places to be in; where others have them all, one of these is forgotten. Ranks of a process say the same, and a forked
// child says for itself what its parent has said.
bool remember_line(int rank, std::string_view message) {
  constexpr uint64_t golden = 0x9e3779b97f4a7c15;
  constexpr size_t neighbours = 8;
  const uint64_t speaker = static_cast<uint64_t>(getpid()) << 32 | static_cast<uint32_t>(rank);
  const uint64_t line =
      (std::hash<std::string_view>{}(message) ^ speaker * golden) | 1;  // 0 is an empty place
  std::atomic<uint64_t>* const first = &said[line / 2 % (said.size() / neighbours) * neighbours];
  for (size_t i = 0; i < neighbours; ++i) {
    uint64_t there = 0;
    if (first[i].compare_exchange_strong(there, line, std::memory_order_relaxed)) return true;
    if (there == line) return false;
  }
  first[line >> 60 & (neighbours - 1)].store(line, std::memory_order_relaxed);
  return true;
}

void read_again() {
  reload();
  static_cast<void>(Filter::read());
}

void reload() {
  const std::lock_guard lock(reading());
  for (std::atomic<uint64_t>& line : said) line.store(0, std::memory_order_relaxed);
  Filter::value.store(Filter::unread, std::memory_order_release);
}

}  // namespace epccl::log
