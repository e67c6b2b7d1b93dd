#include "runtime/bootstrap/ancestors.hpp"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace epccl::runtime {
namespace {

constexpr size_t most_ancestors = 64;

struct Process {
  Ancestor about;
  pid_t parent = 0;
};

/// From /proc/PID/stat: "pid (name) state ppid ... starttime(22)". The name may hold anything, even ") ".
bool read_process(pid_t pid, Process& process) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  const auto open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  process.about.pid = pid;
  process.about.name = line.substr(open + 1, close - open - 1);
  std::istringstream rest(line.substr(close + 1));
  std::string field;
  for (int index = 3; index <= 22 && rest >> field; ++index) {
    if (index == 4) process.parent = static_cast<pid_t>(std::atoi(field.c_str()));
    if (index == 22) process.about.start_time = field;
  }
  return !process.about.start_time.empty();
}

}  // namespace

std::vector<Ancestor> ancestors() {
  std::vector<Ancestor> found;
  for (pid_t pid = getppid(); pid > 0 && found.size() < most_ancestors;) {
    Process process;
    if (!read_process(pid, process)) break;
    found.push_back(std::move(process.about));
    pid = process.parent;
  }
  return found;
}

bool proc_has_our_numbers() {
  std::ifstream file("/proc/self/status");
  const std::string own = std::to_string(getpid());
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("NSpid:")) continue;
    std::istringstream numbers(line.substr(6));  // one for each namespace, from /proc's to the process's own
    std::string first, next;
    return numbers >> first && first == own && !(numbers >> next);
  }
  return false;
}

std::string title_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
  std::string title;
  std::getline(file, title, '\0');
  return title;
}

}  // namespace epccl::runtime
