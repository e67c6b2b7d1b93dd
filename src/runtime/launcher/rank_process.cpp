#include "rank_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

namespace epccl::launcher {
namespace {

struct Pipe {
  UniqueFd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return system_error(errno, "opening a pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// What this process has changed for itself is again as it found it; but a SIGCHLD that it found ignored is not, with which a rank could
/// not wait for children of its own.
void reset_signals(bool ignores_broken_pipes) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, ignores_broken_pipes ? SIG_IGN : SIG_DFL);
}

/// What the child could not do, as it tells its parent.
struct Failure {
  enum class Step : uint8_t { beginning, opening_no_input, directing, running } step = Step::beginning;
  int reason = 0;  // an errno

  Status status(const RankSpec& spec) const {
    switch (step) {
      case Step::beginning:
        return system_error(reason, fmt::format("starting rank {}", spec.rank));
      case Step::opening_no_input:
        return system_error(reason, fmt::format("opening /dev/null, the input of rank {}", spec.rank));
      case Step::directing:
        return system_error(reason, fmt::format("directing input and output of rank {}", spec.rank));
      case Step::running:
        break;
    }
    const Status status = system_error(reason, fmt::format("running {}", spec.command.front()));
    return reason == ENOENT ? Status(Code::invalid_argument, status.message()) : status;
  }
};

/// In the child: never returns. A Failure goes to `report`.
[[noreturn]] void become(const RankSpec& spec, pid_t launcher, int report, const Pipe& output,
                         const Pipe& errors) {
  using Step = Failure::Step;
  const auto give_up = [report](Step step) {
    const Failure failure{step, errno};
    if (::write(report, &failure, sizeof failure) < 0) _exit(126);
    _exit(127);
  };
  setpgid(0, 0);
  // The launcher may have died before this was asked for.
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launcher) give_up(Step::beginning);
  reset_signals(spec.ignores_broken_pipes);
  if (!spec.inherit_input) {
    const int null = open("/dev/null", O_RDONLY);
    if (null < 0) give_up(Step::opening_no_input);
    if (dup2(null, STDIN_FILENO) < 0) give_up(Step::directing);
    if (null != STDIN_FILENO) close(null);
  }
  if (spec.capture_output &&
      (dup2(output.write.get(), STDOUT_FILENO) < 0 || dup2(errors.write.get(), STDERR_FILENO) < 0))
    give_up(Step::directing);
  for (const auto& [name, value] : spec.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : spec.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  give_up(Step::running);
  _exit(127);
}

}  // namespace

Result<RankProcess> start_rank(const RankSpec& spec) {
  EPCCL_ASSIGN(Pipe report, make_pipe());
  Pipe output, errors;
  if (spec.capture_output) {
    EPCCL_ASSIGN(output, make_pipe());
    EPCCL_ASSIGN(errors, make_pipe());
  }
  const pid_t launcher = getpid();
  const pid_t pid = fork();
  if (pid < 0) return system_error(errno, fmt::format("starting rank {}", spec.rank));
  if (pid == 0) become(spec, launcher, report.write.get(), output, errors);
  setpgid(pid, pid);  // here too, so that it is true whoever runs first

  report.write.reset();
  Failure failure;
  ssize_t got = 0;
  do {
    got = ::read(report.read.get(), &failure, sizeof failure);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    waitpid(pid, nullptr, 0);
    return failure.status(spec);
  }
  for (const UniqueFd* end : {&output.read, &errors.read}) {
    if (*end) fcntl(end->get(), F_SETFL, O_NONBLOCK);
  }
  return RankProcess{spec.rank, pid, std::move(output.read), std::move(errors.read)};
}

}  // namespace epccl::launcher
