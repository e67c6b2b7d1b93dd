#include "runtime/engines/graph_writes.hpp"

#include <cstdint>
#include <exception>
#include <utility>

#include "base/per_process.hpp"

namespace epccl::runtime {
namespace {

thread_local GraphWrites::Lane* lane_here = nullptr;

}  // namespace

Status GraphWrites::run(const Write& write) {
  return lane_here == nullptr ? alone(write) : lane_here->all_.hand_over(lane_here->lane_, write);
}

Status GraphWrites::alone(const Write& write) {
  static PerProcess<std::mutex> one_at_a_time;
  const std::lock_guard lock(*one_at_a_time);
  return write();
}

Status GraphWrites::hand_over(size_t lane, const Write& write) {
  std::unique_lock lock(mutex_);
  State& mine = lanes_[lane];
  mine.handed = &write;
  changed_.notify_all();
  changed_.wait(lock, [&] { return mine.handed == nullptr; });
  return std::move(mine.written);
}

void GraphWrites::serve(const std::vector<size_t>& order) {
  std::vector<size_t> calls(lanes_.size());
  for (const size_t lane : order) serve_call(lanes_[lane], ++calls[lane]);
}

// A call that fails writes nothing.
void GraphWrites::serve_call(State& lane, size_t call) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return lane.over >= call || lane.handed != nullptr; });
    if (lane.over >= call) return;
    const Write& write = *lane.handed;
    lock.unlock();
    Status written;
    try {
      written = alone(write);
    } catch (const std::exception& thrown) {
      written = error(Code::system_error, "writing a call into a graph: {}", thrown.what());
    }
    lock.lock();
    lane.written = std::move(written);
    lane.handed = nullptr;
    changed_.notify_all();
  }
}

// Where the system had no thread for the lane the serving thread runs it, and nobody else could write for it.
GraphWrites::Lane::Lane(GraphWrites& all, size_t lane) : all_(all), lane_(lane) {
  if (std::this_thread::get_id() != all.server_) lane_here = this;
}

GraphWrites::Lane::~Lane() {
  lane_here = nullptr;
  const std::lock_guard lock(all_.mutex_);
  all_.lanes_[lane_].over = SIZE_MAX;
  all_.changed_.notify_all();
}

void GraphWrites::Lane::call_over() {
  const std::lock_guard lock(all_.mutex_);
  ++all_.lanes_[lane_].over;
  all_.changed_.notify_all();
}

}  // namespace epccl::runtime
