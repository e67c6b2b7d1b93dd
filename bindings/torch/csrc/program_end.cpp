#include <Python.h>

#include "program_end.hpp"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "backend.hpp"

namespace epccl_torch {
namespace {

/// Never destroyed: groups may outlive everything else.
struct LiveGroups {
  std::mutex mutex;  // a group that ends waits until it has left
  std::set<EpcclBackend*> groups;
  std::thread leaving;
  std::atomic<bool> over{false};
  InterpreterGate gate;
};

LiveGroups& live();

// A forked child has the groups, but not their threads, and its end is not that of this rank.
LiveGroups* forked() {
  for (EpcclBackend* group : live().groups) group->stay_of_parent();
  auto* const none = new LiveGroups;
  live().mutex.unlock();
  return none;
}

LiveGroups& live() {
  static auto* instance = new LiveGroups;
  static const int installed = pthread_atfork([] { instance->mutex.lock(); },    //
                                              [] { instance->mutex.unlock(); },  //
                                              [] { instance = forked(); });
  static_cast<void>(installed);
  return *instance;
}

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// With the mutex.
void leave_all() {
  for (EpcclBackend* group : live().groups) group->leave_at_end();
  // All groups at once: whom one waits for may wait for this rank in another.
  const auto end = std::chrono::steady_clock::now() + EpcclBackend::gpus_time_to_end;
  for (bool all = false, waits = true; !all; waits = std::chrono::steady_clock::now() < end) {
    all = true;
    for (EpcclBackend* group : live().groups) all &= group->leave_gpus_at_end(waits);
    if (!all) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Without the interpreter's lock: nobody gets it any more.
void leave_once_finalizing() {
  while (!is_finalizing()) {
    if (live().over) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::lock_guard lock(live().mutex);
  leave_all();
}

// Who is in the gate may wait for the interpreter's lock.
void close_interpreter_gate() {
  PyThreadState* const state = PyEval_SaveThread();
  {
    const std::lock_guard lock(live().gate.mutex);
    live().gate.closed = true;
  }
  PyEval_RestoreThread(state);
}

}  // namespace

void group_begins(EpcclBackend* group) {
  const std::lock_guard lock(live().mutex);
  live().groups.insert(group);
}

void group_ends(EpcclBackend* group) {
  const std::lock_guard lock(live().mutex);
  live().groups.erase(group);
}

InterpreterGate& interpreter_gate() {
  return live().gate;
}

void program_ends() {
  close_interpreter_gate();
  // The last thing that the interpreter does: before the process takes libepccl apart.
  const int registered = Py_AtExit([] {
    live().over = true;
    if (live().leaving.joinable()) live().leaving.join();
  });
  if (registered == 0 && !live().leaving.joinable()) live().leaving = std::thread(leave_once_finalizing);
}

void process_ends() {
  const std::lock_guard lock(live().mutex);
  leave_all();
  for (EpcclBackend* group : live().groups) group->leave_messages_at_end();
}

}  // namespace epccl_torch
