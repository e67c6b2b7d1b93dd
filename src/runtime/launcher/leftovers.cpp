#include "leftovers.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <string_view>

#include "base/unique_fd.hpp"

namespace epccl::launcher {
namespace {

namespace fs = std::filesystem;

// A process may end at any time: what cannot be read any more is not there. (A stream would throw.)
std::string contents(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string all;
  std::array<char, 4096> part{};
  for (ssize_t got = 1; file && got > 0;) {
    got = read(file.get(), part.data(), part.size());
    if (got > 0) all.append(part.data(), static_cast<size_t>(got));
  }
  return all;
}

bool has_store(pid_t pid, const std::string& store) {
  const std::string environment = contents("/proc/" + std::to_string(pid) + "/environ");
  const std::string wanted = "EPCCL_STORE=" + store;
  for (size_t at = environment.find(wanted); at != std::string::npos; at = environment.find(wanted, at + 1)) {
    const size_t end = at + wanted.size();
    if ((at == 0 || environment[at - 1] == '\0') && (end == environment.size() || environment[end] == '\0'))
      return true;
  }
  return false;
}

bool is_live_child(pid_t pid) {
  siginfo_t ended{};
  return waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
}

/// There may be none, or that of another PID namespace, where the numbers are not this one's.
bool has_own_proc() {
  std::error_code none;
  return fs::read_symlink("/proc/self", none) == std::to_string(getpid());
}

bool belongs(pid_t pid, const std::string& store) {
  return is_live_child(pid) || (has_own_proc() && has_store(pid, store));
}

/// The number that was given last.
pid_t newest() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  if (pid > 0) waitpid(pid, nullptr, 0);
  return pid;
}

/// What there is to choose from without /proc. Numbers are given in turn, up to a limit (which stands in /proc, too), and children have come
/// after this process.
std::vector<pid_t> children_by_number() {
  constexpr pid_t usual_limit = 1 << 15, highest_limit = 1 << 22;
  const pid_t last = newest();
  const pid_t end = last < getpid() ? highest_limit : std::max(last, usual_limit);
  std::vector<pid_t> found;
  for (pid_t pid = 1; pid <= end; ++pid)
    if (is_live_child(pid)) found.push_back(pid);
  return found;
}

template <typename Predicate>
std::vector<pid_t> processes(const Predicate& wanted) {
  std::vector<pid_t> found;
  if (!has_own_proc()) {
    std::ranges::copy_if(children_by_number(), std::back_inserter(found), wanted);
    return found;
  }
  std::error_code failed;
  for (fs::directory_iterator entry("/proc", failed), end_of_all; !failed && entry != end_of_all;
       entry.increment(failed)) {
    const std::string name = entry->path().filename();
    pid_t pid = 0;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (code != std::errc() || end != name.data() + name.size()) continue;
    if (wanted(pid)) found.push_back(pid);
  }
  return found;
}

}  // namespace

std::vector<pid_t> children() {
  return processes(is_live_child);
}

std::vector<pid_t> job_processes(const std::string& store, std::span<const pid_t> except) {
  return processes([&](pid_t pid) {
    return pid != getpid() && std::ranges::find(except, pid) == except.end() && belongs(pid, store);
  });
}

int signal_job_processes(const std::string& store, std::span<const pid_t> except, int signal) {
  int count = 0;
  for (const pid_t pid : job_processes(store, except)) {
    // The number may have changed hands; the handle cannot.
    const UniqueFd handle(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!belongs(pid, store)) continue;
    ++count;
    if (handle) {
      syscall(SYS_pidfd_send_signal, handle.get(), signal, nullptr, 0);
    } else {
      kill(pid, signal);  // a kernel without handles
    }
  }
  return count;
}

}  // namespace epccl::launcher
