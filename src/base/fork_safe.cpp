#include "base/fork_safe.hpp"

namespace epccl {
namespace {

// Read by forks while other threads may be adding to it: no lock.
std::atomic<LockedToFork*>& locks() {
  static std::atomic<LockedToFork*> first{nullptr};
  return first;
}

// Of this thread's fork: what was added to the list meanwhile it does not hold.
thread_local constinit LockedToFork* held_from = nullptr;

}  // namespace

// When the library is loaded. What asks later for the like (a program, or a library that it opens) is run before this where a fork is
// prepared, and after it in the parent and in the child, where it finds all these free.
const int LockedToFork::installed = pthread_atfork(before_fork, in_parent, in_child);

// All threads that fork take them in the order of the list. One that has a mutex itself could wait here for one that waits for it: it takes
// none, and its child may find unfinished what other threads were changing.
void LockedToFork::before_fork() {
  LockedToFork* const first = locks();
  held_from = nullptr;
  for (LockedToFork* each = first; each != nullptr; each = each->next_)
    if (each->is_mine()) return;
  for (LockedToFork* each = first; each != nullptr; each = each->next_) each->hold();
  held_from = first;
}

void LockedToFork::in_parent() {
  for (LockedToFork* each = held_from; each != nullptr; each = each->next_) each->release();
}

void LockedToFork::in_child() {
#if defined(__SANITIZE_THREAD__)
  in_parent();  // to ThreadSanitizer what is made anew where a locked mutex was is locked
#endif
  for (LockedToFork* each = locks(); each != nullptr; each = each->next_) each->renew();
}

void LockedToFork::publish() {
  next_ = locks();
  while (!locks().compare_exchange_weak(next_, this)) {
  }
}

}  // namespace epccl
