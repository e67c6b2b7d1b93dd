#include "job.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/allowed_calls.hpp"
#include "base/clock.hpp"
#include "base/file_size.hpp"
#include "leftovers.hpp"

namespace epccl::launcher {
namespace {

constexpr double term_patience = 2;  // seconds between TERM and KILL
constexpr double kill_patience = 5;  // after KILL: what is left then, cannot be killed
constexpr double cause_window =
    1;                             // seconds in which a crash counts as the cause of a failure seen before it
constexpr int timeout_code = 124;  // as timeout(1)
constexpr int not_found_code = 127, not_runnable_code = 126;
constexpr int passed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};

/// Killed by what no program does to itself on purpose.
bool is_crash(int status) {
  if (!WIFSIGNALED(status)) return false;
  const int number = WTERMSIG(status);
  return number == SIGKILL || number == SIGSEGV || number == SIGBUS || number == SIGILL || number == SIGFPE;
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

}  // namespace

Job::Job(const Options& options, std::string store) : options_(options), store_(std::move(store)) {}

int Job::run() {
  Status status = prepare();
  if (status.ok()) status = start_all();
  if (!status.ok()) {
    say(status.message());
    fail(status.code() == Code::invalid_argument ? not_found_code : not_runnable_code);
    next_phase_at_ = now_seconds();  // who has started waits for one that never comes
  } else if (options_.timeout > 0) {
    next_phase_at_ = now_seconds() + options_.timeout;
  }
  while (ranks_running() > 0) step();
  end_leftovers();
  for (auto& [fd, forwarder] : forwarders_) {
    forwarder.finish();
    check_output(forwarder);
  }
  return exit_code_;
}

Status Job::prepare() {
  // Orphans of the ranks come to this process, so that they can be found and ended.
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return system_error(errno, "becoming the reaper of orphans");
  not_of_the_job_ = children();
  ignored_broken_pipes_ = signal(SIGPIPE, SIG_IGN) == SIG_IGN;
  // Where whoever started this process ignores it, the kernel would reap the ranks, and tell nobody.
  signal(SIGCHLD, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (const int number : passed_on) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    // What was ignored from the start (nohup) stays so, for the ranks as well.
    if (before.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!signals_ || !epoll_) return system_error(errno, "preparing to wait for the ranks");
  // It would be refused again and again.
  if (epoll_event none{}; epoll_wait(epoll_.get(), &none, 1, 0) < 0 && errno != EINTR)
    return call_error(errno, "epoll_wait").with_context("preparing to wait for the ranks");
  watch(signals_.get());
  return {};
}

Status Job::start_all() {
  int rank = 0;
  for (size_t node = 0; node < options_.ranks_per_node.size(); ++node) {
    for (int local_rank = 0; local_rank < options_.ranks_per_node[node]; ++local_rank)
      EPCCL_TRY(start(rank++, static_cast<int>(node), local_rank));
  }
  return {};
}

Status Job::start(int rank, int node, int local_rank) {
  RankSpec spec;
  spec.rank = rank;
  spec.command = options_.command;
  spec.capture_output = options_.tag_output;
  // A background process group that reads from a terminal is stopped, so a terminal is nobody's input.
  spec.inherit_input = rank == 0 && isatty(STDIN_FILENO) == 0;
  spec.ignores_broken_pipes = ignored_broken_pipes_;
  const std::string own = std::to_string(rank), ranks = std::to_string(options_.ranks()),
                    local = std::to_string(local_rank);
  // What torch.distributed's env:// reads, and may be somebody else's where this program is one of several.
  spec.environment = {{"RANK", own}, {"WORLD_SIZE", ranks}, {"LOCAL_RANK", local}};
  spec.environment.insert(spec.environment.end(), options_.environment.begin(), options_.environment.end());
  spec.environment.emplace_back("EPCCL_RANK", own);
  spec.environment.emplace_back("EPCCL_WORLD_SIZE", ranks);
  spec.environment.emplace_back("EPCCL_LOCAL_RANK", local);
  spec.environment.emplace_back("EPCCL_STORE", store_);
  const std::string name = options_.virtual_nodes ? fmt::format("node{}", node) : "";
  if (options_.virtual_nodes) spec.environment.emplace_back("EPCCL_HOSTID", name);
  EPCCL_ASSIGN(RankProcess started, start_rank(spec));
  ranks_.push_back({started.pid, rank, name, false});
  for (auto [source, target] :
       {std::pair(&started.output, STDOUT_FILENO), std::pair(&started.errors, STDERR_FILENO)}) {
    if (!*source) continue;
    const int fd = source->get();
    forwarders_.try_emplace(fd, std::move(*source), target, rank);
    watch(fd);
  }
  return {};
}

void Job::watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
}

/// Waits for something to happen, and deals with it.
void Job::step() {
  std::array<epoll_event, 64> events;
  int wait = -1;
  if (next_phase_at_ > 0)
    wait = static_cast<int>(std::clamp(std::ceil((next_phase_at_ - now_seconds()) * 1e3), 0.0, 1e9));
  const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
  for (int i = 0; i < ready; ++i) {
    const int fd = events[static_cast<size_t>(i)].data.fd;
    if (fd == signals_.get()) {
      take_signals();
    } else {
      forward(fd);
    }
  }
  if (next_phase_at_ > 0 && now_seconds() >= next_phase_at_) escalate(now_seconds());
}

void Job::forward(int fd) {
  const auto found = forwarders_.find(fd);
  if (found == forwarders_.end() || found->second.forward()) return;
  check_output(found->second);
  forwarders_.erase(found);
}

void Job::check_output(const LineForwarder& forwarder) {
  if (forwarder.error() == 0 || output_is_lost_) return;
  output_is_lost_ = true;
  say(fmt::format("what the ranks print cannot be written: {}", strerror(forwarder.error())));
  fail(1);
}

void Job::take_signals() {
  signalfd_siginfo info;
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGCHLD) {
      reap();
      continue;
    }
    pass_on(number);
    if (number == SIGTSTP) raise(SIGSTOP);
    // Ranks may handle the first one as they like; who asks twice wants them gone.
    if ((number == SIGINT || number == SIGTERM) && ++interrupts_ == 2) fail(128 + number);
  }
}

void Job::pass_on(int number) {
  for (const Rank& rank : ranks_) {
    if (!rank.ended) kill(-rank.pid, number);
  }
}

void Job::reap() {
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    const auto rank =
        std::find_if(ranks_.begin(), ranks_.end(), [pid](const Rank& each) { return each.pid == pid; });
    if (rank != ranks_.end()) rank_ended(*rank, status);
    std::erase(not_of_the_job_, pid);  // another process may get that number
  }
}

void Job::rank_ended(Rank& rank, int status) {
  rank.ended = true;
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  // Those that end after the first failure end because of it. But a killed rank's connections close before it
  // can be reaped, so that others may complain, and end, first.
  const bool cause =
      phase_ == Phase::grace && interrupts_ == 0 && now_seconds() < cause_until_ && is_crash(status);
  if (code == 0 || (phase_ != Phase::running && !cause)) return;
  const std::string who = rank.node.empty()
                              ? fmt::format("rank {} (pid {})", rank.rank, rank.pid)
                              : fmt::format("rank {} ({}, pid {})", rank.rank, rank.node, rank.pid);
  const std::string how =
      WIFSIGNALED(status)
          ? fmt::format("was killed by {} ({})", signal_name(WTERMSIG(status)), strsignal(WTERMSIG(status)))
          : fmt::format("exited with code {}", code);
  const int others = ranks_running();
  say(fmt::format("{} {}{}", who, how,
                  others > 0 ? fmt::format("; {} more have {} s to end", others, options_.grace) : ""));
  if (cause) exit_code_ = code;
  cause_until_ = cause || WIFSIGNALED(status) ? 0 : now_seconds() + cause_window;
  fail(code);
}

/// The first failure decides the exit code, and starts the grace period.
void Job::fail(int code) {
  if (phase_ != Phase::running) return;
  phase_ = Phase::grace;
  exit_code_ = code;
  next_phase_at_ = now_seconds() + options_.grace;
}

void Job::escalate(double now) {
  if (phase_ == Phase::running) {
    say(fmt::format("{} of {} ranks still run after {} s; ending them", ranks_running(), ranks_.size(),
                    options_.timeout));
    exit_code_ = timeout_code;
    phase_ = Phase::grace;
  } else if (phase_ == Phase::term_sent) {
    say(fmt::format("{} ranks did not end within {} s of SIGTERM; killing them", ranks_running(),
                    term_patience));
  }
  const bool terminate = phase_ == Phase::grace;
  pass_on(terminate ? SIGTERM : SIGKILL);
  pass_on(SIGCONT);  // a stopped process does not take SIGTERM
  phase_ = terminate ? Phase::term_sent : Phase::kill_sent;
  next_phase_at_ = terminate ? now + term_patience : 0;
}

/// Ends what the ranks have started and left.
void Job::end_leftovers() {
  const double deadline = now_seconds() + term_patience;
  // Once by TERM, then, after the patience, by KILL until nothing is left, or what is left cannot be killed.
  int left = signal_job_processes(store_, not_of_the_job_, SIGTERM);
  while (left > 0) {
    const double now = now_seconds();
    const bool patient = now < deadline;
    if (now > deadline + kill_patience) {
      say(fmt::format("{} processes that ranks had started did not end within {} s of SIGKILL: left behind",
                      left, kill_patience));
      break;
    }
    reap();
    left = patient ? static_cast<int>(job_processes(store_, not_of_the_job_).size())
                   : signal_job_processes(store_, not_of_the_job_, SIGKILL);
    if (left > 0) usleep(10'000);
  }
  reap();
}

int Job::ranks_running() const {
  return static_cast<int>(
      std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& each) { return !each.ended; }));
}

void Job::say(const std::string& text) const {
  const std::string line = "epccl-run: " + text + "\n";
  const NoFileSizeSignal none;
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) return;  // nobody listens
}

}  // namespace epccl::launcher
