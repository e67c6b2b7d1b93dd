#include "transports/cuda_ipc/unmapper.hpp"

#include <utility>

#include "base/thread.hpp"

namespace epccl::transports {

Unmapper::~Unmapper() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Unmapper::end(std::unique_ptr<device::MappedMemory> mapping) {
  {
    const std::lock_guard lock(mutex_);
    ending_.push_back(std::move(mapping));
    if (!thread_.joinable()) thread_ = start_thread([this] { serve(); });
  }
  changed_.notify_all();
}

void Unmapper::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stops_ || !ending_.empty(); });
    if (ending_.empty()) return;
    auto now = std::exchange(ending_, {});
    lock.unlock();
    now.clear();
    lock.lock();
  }
}

}  // namespace epccl::transports
