#include "device/host/host_stream.hpp"

#include <sys/prctl.h>

#include <unordered_map>

#include "base/log.hpp"
#include "base/per_process.hpp"
#include "base/thread.hpp"

namespace epccl::device {
namespace {

thread_local const HostStream* current = nullptr;  // whose thread this is

}  // namespace

bool HostStream::runs_unwatched() {
  return current != nullptr && current->watchers_->load(std::memory_order_relaxed) == 0;
}

HostStream::HostStream() : thread_(start_thread([this] { run(); })) {}

HostStream::~HostStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void HostStream::end_elsewhere(std::unique_ptr<HostStream> stream) {
  HostStream* const it = stream.release();
  try {
    start_thread([it] { const std::unique_ptr<HostStream> ended(it); }).detach();
  } catch (const std::exception& none) {
    log::warn(log::coll, -1, "a stream's thread is left behind: no thread to end it: {}", none.what());
  }
}

void HostStream::enqueue(Work work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  wake_.notify_one();
}

Status HostStream::synchronize() {
  const Watch watch(watchers_);
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [this] { return queue_.empty() && !busy_; });
  return std::exchange(first_error_, Status{});
}

bool HostStream::idle() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !busy_;
}

namespace {

Status result_of(const std::function<Status()>& work) {
  try {
    return work();
  } catch (const std::exception& thrown) {
    return Status(Code::system_error, thrown.what());
  }
}

}  // namespace

void HostStream::run() {
  current = this;
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds: its sleeps are short
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    Status status = result_of(work);
    work = nullptr;  // what it holds is released before anybody sees the stream idle
    lock.lock();
    busy_ = false;
    if (!status.ok() && first_error_.ok()) first_error_ = std::move(status);
    if (queue_.empty()) drained_.notify_all();
  }
}

namespace {

struct Streams {
  std::mutex mutex;
  std::unordered_map<void*, std::unique_ptr<HostStream>> by_handle;
};

Streams& streams() {
  // Never destroyed: a stream that the program forgot may have calls that wait for other ranks.
  static PerProcess<Streams> instance;
  return *instance;
}

}  // namespace

HostStream* create_stream() {
  auto stream = std::make_unique<HostStream>();
  HostStream* handle = stream.get();
  const std::lock_guard lock(streams().mutex);
  streams().by_handle.emplace(handle, std::move(stream));
  return handle;
}

HostStream* find_stream(void* handle) {
  const std::lock_guard lock(streams().mutex);
  const auto it = streams().by_handle.find(handle);
  return it == streams().by_handle.end() ? nullptr : it->second.get();
}

bool destroy_stream(void* handle) {
  std::unique_ptr<HostStream> stream;
  {
    const std::lock_guard lock(streams().mutex);
    const auto it = streams().by_handle.find(handle);
    if (it == streams().by_handle.end()) return false;
    stream = std::move(it->second);
    streams().by_handle.erase(it);
  }
  return true;
}

}  // namespace epccl::device
