#include "send_channel.hpp"

#include <utility>

#include "from_store.hpp"
#include "group_thread.hpp"

namespace epccl_torch {

SendChannel::SendChannel(Meeting meeting, std::function<void()> announce)
    : line_(std::move(meeting)), announce_(std::move(announce)) {
  thread_ = start_group_thread([this] { serve(); });
}

SendChannel::~SendChannel() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SendChannel::issue(Message message) {
  std::unique_lock lock(mutex_);
  if (failure_) {
    const std::exception_ptr why = failure_;
    lock.unlock();
    message.call->fail(why);
    return;
  }
  posted_.push_back(std::move(message));
  lock.unlock();
  changed_.notify_all();
}

void SendChannel::leave(std::chrono::steady_clock::time_point deadline) {
  bool pending = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [this] { return !busy_ && posted_.empty(); });
    // Without one in the list, a message is past the point where its partner could be missing.
    changed_.wait(lock, [this] { return !busy_ || !posted_.empty(); });
    pending = !posted_.empty();
  }
  if (pending) abort();
}

void SendChannel::abort() noexcept {
  line_.abort();
  changed_.notify_all();
}

void SendChannel::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return over_ || !posted_.empty(); });
    if (posted_.empty()) return;
    busy_ = true;
    lock.unlock();
    try {
      send_one();
    } catch (...) {
      fail_all(std::current_exception());
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

// The front of the queue is this thread's alone: others only add at the back.
void SendChannel::send_one() {
  if (announce_) from_store(line_.name(), std::exchange(announce_, nullptr));
  epcclComm_t comm = line_.open();
  Message message;
  {
    const std::lock_guard lock(mutex_);
    message = posted_.front();
  }
  const MessageHeader header{message.bytes, message.tag};
  check(epcclCommSetTimeout(comm, line_.timeout_seconds()), line_.name());
  check(epcclGroupStart(), line_.name());
  // What is refused here is told by the end of the group.
  (void)epcclSend(&header, sizeof header, epcclUint8, 1, comm, nullptr);
  if (message.bytes > 0) (void)epcclSend(message.data, message.bytes, epcclUint8, 1, comm, nullptr);
  check(epcclGroupEnd(), line_.name());
  {
    const std::lock_guard lock(mutex_);
    posted_.pop_front();
  }
  message.call->run();
}

void SendChannel::fail_all(const std::exception_ptr& why) {
  std::deque<Message> lost;
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    lost.swap(posted_);
  }
  for (const Message& message : lost) message.call->fail(why);
}

}  // namespace epccl_torch
