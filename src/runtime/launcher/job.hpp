// The ranks of one epccl-run, from start to the last trace of them.
//
//   running --a rank fails, timeout, second INT or TERM--> grace --> TERM sent --> KILL sent
//      \________________________all ranks ended______________________________________/
//                                   |
//                            leftovers ended, output drained
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"
#include "options.hpp"
#include "output.hpp"
#include "rank_process.hpp"

namespace epccl::launcher {

class Job {
 public:
  /// `store` is the directory the ranks meet in. Children that this process has before run() are left alone: the warden, and
  /// what a shell had started that then became epccl-run.
  Job(const Options& options, std::string store);

  /// Runs to the end; the exit code of epccl-run.
  int run();

 private:
  enum class Phase : uint8_t { running, grace, term_sent, kill_sent };
  struct Rank {
    pid_t pid = -1;
    int rank = 0;
    std::string node;  // "" where there is only one
    bool ended = false;
  };

  Status prepare();
  Status start_all();
  Status start(int rank, int node, int local_rank);
  void watch(int fd);
  void step();
  void take_signals();
  void pass_on(int signal);
  void reap();
  void rank_ended(Rank& rank, int status);
  void fail(int code);
  void escalate(double now);
  void end_leftovers();
  void forward(int fd);
  void check_output(const LineForwarder& forwarder);
  int ranks_running() const;
  void say(const std::string& text) const;

  const Options& options_;
  std::string store_;
  std::vector<pid_t> not_of_the_job_;
  UniqueFd epoll_, signals_;
  std::vector<Rank> ranks_;
  std::map<int, LineForwarder> forwarders_;  // by descriptor
  Phase phase_ = Phase::running;
  double next_phase_at_ = 0;  // now_seconds(); 0: never
  double cause_until_ = 0;    // now_seconds(): a crash until then caused the failure that was seen first
  int interrupts_ = 0;
  bool output_is_lost_ = false;
  bool ignored_broken_pipes_ = false;  // SIGPIPE, before this process did
  int exit_code_ = 0;
};

}  // namespace epccl::launcher
