#include "device/held_streams.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "base/per_process.hpp"

namespace epccl::device {
namespace {

constexpr std::chrono::milliseconds patience{200};

using Work = std::vector<std::function<void()>>;

struct State {
  std::mutex mutex;
  std::condition_variable changed;
  int held = 0, freeing = 0;  // one of them is 0, if nothing was impatient
  Work put_off;
};
State& state() {
  static PerProcess<State> instance;
  return *instance;
}

/// `lock` is of the state.
void free_all(Work work, std::unique_lock<std::mutex> lock) {
  ++state().freeing;
  lock.unlock();
  for (auto& each : work) each();
  work.clear();
  lock.lock();
  --state().freeing;
  state().changed.notify_all();
}

}  // namespace

HeldStreams::Hold::Hold(Begins begins) {
  std::unique_lock lock(state().mutex);
  if (begins == Begins::after_frees) state().changed.wait(lock, [] { return state().freeing == 0; });
  ++state().held;
}

HeldStreams::Hold::~Hold() {
  std::unique_lock lock(state().mutex);
  if (--state().held > 0) return;
  state().changed.notify_all();
  if (!state().put_off.empty()) free_all(std::exchange(state().put_off, {}), std::move(lock));
}

HeldStreams::Quiet::Quiet() {
  std::unique_lock lock(state().mutex);
  keeps_out_ = state().changed.wait_for(lock, patience, [] { return state().held == 0; });
  if (keeps_out_) ++state().freeing;
}

HeldStreams::Quiet::~Quiet() {
  if (!keeps_out_) return;
  const std::lock_guard lock(state().mutex);
  --state().freeing;
  state().changed.notify_all();
}

void HeldStreams::when_none(std::function<void()> work) {
  std::unique_lock lock(state().mutex);
  if (state().held > 0) {
    state().put_off.push_back(std::move(work));
    return;
  }
  Work now;
  now.push_back(std::move(work));
  free_all(std::move(now), std::move(lock));
}

bool HeldStreams::settle(double seconds) {
  std::unique_lock lock(state().mutex);
  const bool was_put_off = !state().put_off.empty() || state().freeing > 0;
  state().changed.wait_for(lock, std::chrono::duration<double>(seconds),
                           [] { return state().put_off.empty() && state().freeing == 0; });
  return was_put_off;
}

}  // namespace epccl::device
