#include "base/per_process.hpp"

#include <pthread.h>

#include <atomic>

namespace epccl {
namespace {

// Read in a child of a process whose other threads may be adding to it: no lock.
std::atomic<RenewedByFork*>& all() {
  static std::atomic<RenewedByFork*> first{nullptr};
  return first;
}

}  // namespace

void RenewedByFork::renew_all() {
  for (RenewedByFork* each = all(); each != nullptr; each = each->next_) each->renew();
}

void RenewedByFork::publish() {
  static const int installed = pthread_atfork(nullptr, nullptr, renew_all);
  static_cast<void>(installed);
  next_ = all();
  while (!all().compare_exchange_weak(next_, this)) {
  }
}

}  // namespace epccl
