#include "warden.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "leftovers.hpp"

namespace epccl::launcher {
namespace {

constexpr int sweeps = 100;  // a process may start another one while it is being ended

[[noreturn]] void watch(int line, const std::string& store) {
  prctl(PR_SET_NAME, "epccl-warden");
  setsid();  // out of reach of the terminal's signals
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // Whoever waits for the end of epccl-run's output must not wait for this process.
  const int null = open("/dev/null", O_RDWR);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (dup2(null, fd) < 0) close(fd);  // there is no /dev/null
  char relieved = 0;
  if (::read(line, &relieved, 1) == 1) _exit(0);
  for (int sweep = 0; sweep < sweeps && signal_job_processes(store, {}, SIGKILL) > 0; ++sweep)
    poll(nullptr, 0, 10);
  std::error_code ignored;
  std::filesystem::remove_all(store, ignored);
  _exit(0);
}

}  // namespace

Result<Warden> Warden::start(const std::string& store) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "opening a pipe");
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  const pid_t pid = fork();
  if (pid < 0) return system_error(errno, "starting the warden");
  if (pid == 0) {
    write_end.reset();
    watch(read_end.get(), store);
  }
  return Warden(std::move(write_end), pid);
}

Warden::~Warden() {
  if (!line_) return;
  const char relieved = 1;
  if (::write(line_.get(), &relieved, 1) != 1) kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

}  // namespace epccl::launcher
