#include "device/host/host_event.hpp"

#include <unordered_map>

#include "base/per_process.hpp"

namespace epccl::device {

void HostEvent::record(HostStream* stream) {
  std::shared_ptr<Mark> mark;
  if (stream != nullptr) {
    mark = std::make_shared<Mark>();
    mark->watchers = stream->watchers();
  }
  // Under the lock, so that of two records the one that counts is also the later one in its stream.
  const std::lock_guard lock(mutex_);
  last_ = mark;
  if (stream == nullptr) return;
  stream->enqueue([mark]() -> Status {
    // In one order with what wait() counts itself by: notify_all() looks at that first.
    mark->reached.store(1, std::memory_order_seq_cst);
    mark->reached.notify_all();
    return {};
  });
}

std::shared_ptr<const HostEvent::Mark> HostEvent::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

bool HostEvent::complete() const {
  const auto mark = last();
  return mark == nullptr || mark->reached.load(std::memory_order_acquire) != 0;
}

void HostEvent::synchronize() const {
  const auto mark = last();
  if (mark == nullptr) return;
  const HostStream::Watch watch(mark->watchers);
  mark->wait();
}

void HostEvent::hold_back(HostStream* stream) const {
  if (stream == nullptr) return synchronize();
  const auto mark = last();
  if (mark == nullptr) return;
  stream->enqueue([mark]() -> Status {
    mark->wait();
    return {};
  });
}

namespace {

struct Events {
  std::mutex mutex;
  std::unordered_map<void*, std::shared_ptr<HostEvent>> by_handle;
};

Events& events() {
  static PerProcess<Events> instance;
  return *instance;
}

}  // namespace

void* create_event() {
  auto event = std::make_shared<HostEvent>();
  void* handle = event.get();
  const std::lock_guard lock(events().mutex);
  events().by_handle.emplace(handle, std::move(event));
  return handle;
}

std::shared_ptr<HostEvent> find_event(void* handle) {
  const std::lock_guard lock(events().mutex);
  const auto it = events().by_handle.find(handle);
  return it == events().by_handle.end() ? nullptr : it->second;
}

bool destroy_event(void* handle) {
  const std::lock_guard lock(events().mutex);
  return events().by_handle.erase(handle) > 0;
}

}  // namespace epccl::device
