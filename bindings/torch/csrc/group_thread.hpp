// The threads of process groups.
#pragma once

#include <signal.h>

#include <functional>
#include <thread>
#include <utility>

namespace epccl_torch {

/// Whether this is one: then no group may end here, since that waits for its threads.
inline thread_local bool on_group_thread = false;

/// Signals of the program are handled on its own threads; only what one of these does wrong itself reaches its handlers there. A thread
/// begins with the mask of the one that starts it. (As those of the library, whose base/thread.hpp is not at hand here.)
class ProgramsSignalsBlocked {
 public:
  ProgramsSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS})
      sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ProgramsSignalsBlocked(const ProgramsSignalsBlocked&) = delete;
  ProgramsSignalsBlocked& operator=(const ProgramsSignalsBlocked&) = delete;
  ~ProgramsSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

inline std::thread start_group_thread(std::function<void()> serve) {
  const ProgramsSignalsBlocked blocked;
  return std::thread([serve = std::move(serve)] {
    on_group_thread = true;
    serve();
  });
}

}  // namespace epccl_torch
