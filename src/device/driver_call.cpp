#include "device/driver_call.hpp"

#include <memory>
#include <mutex>
#include <vector>

#include "base/never_destroyed.hpp"

namespace epccl::device {
namespace {

struct Traces {
  std::mutex mutex;
  std::vector<std::unique_ptr<DriverCall::Trace>> all;
  std::vector<DriverCall::Trace*> free;
};
Traces& traces() {
  static NeverDestroyed<Traces> instance;
  return *instance;
}

DriverCall::Trace* take_trace() {
  const std::lock_guard lock(traces().mutex);
  auto& free = traces().free;
  if (free.empty()) return traces().all.emplace_back(std::make_unique<DriverCall::Trace>()).get();
  DriverCall::Trace* const taken = free.back();
  free.pop_back();
  return taken;
}

/// What else ends with a thread may still call the driver after this: its trace can be written to for ever.
struct GivesBack {
  explicit GivesBack(DriverCall::Trace* given) : trace(given) {}
  GivesBack(const GivesBack&) = delete;
  GivesBack& operator=(const GivesBack&) = delete;
  ~GivesBack() {
    const std::lock_guard lock(traces().mutex);
    traces().free.push_back(trace);
  }
  DriverCall::Trace* const trace;
};

}  // namespace

DriverCall::Trace& DriverCall::of_this_thread() {
  thread_local Trace* mine = nullptr;
  if (mine == nullptr) {
    mine = take_trace();
    thread_local const GivesBack at_its_end(mine);
  }
  return *mine;
}

}  // namespace epccl::device
