#include "pair_channel.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace epccl_torch {
namespace {

struct Header {
  uint64_t bytes;
  int64_t tag;
};

}  // namespace

PairChannel::PairChannel(Meeting meeting) : meeting_(std::move(meeting)) {
  meeting_.give_up = aborted_;
  thread_ = std::thread([this] { serve(); });
}

PairChannel::~PairChannel() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void PairChannel::issue(Message message) {
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

void PairChannel::leave() {
  bool pending = false;
  {
    std::unique_lock lock(mutex_);
    // Without one in the list, a message is past the point where its partner could be missing.
    changed_.wait(lock, [this] { return !busy_ || !posted_.empty(); });
    pending = !posted_.empty();
  }
  if (pending) abort();
}

void PairChannel::abort() noexcept {
  std::shared_ptr<Communicator> open;
  {
    const std::lock_guard lock(mutex_);
    *aborted_ = true;
    open = communicator_;
  }
  if (open) open->abort();
  changed_.notify_all();
}

void PairChannel::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return over_ || !posted_.empty(); });
    if (posted_.empty()) return;
    busy_ = true;
    try {
      TORCH_CHECK_WITH(DistBackendError, !*aborted_, "epccl: this process group was aborted");
      if (!communicator_) {
        lock.unlock();
        auto made = meet(meeting_);
        lock.lock();
        communicator_ = std::move(made);
        if (*aborted_) communicator_->abort();
      }
      if (meeting_.rank == 1) take_early(lock);
      const bool any = !posted_.empty();
      lock.unlock();
      if (any) meeting_.rank == 0 ? send_one() : receive_one();
      lock.lock();
    } catch (...) {
      if (lock.owns_lock()) lock.unlock();
      fail_all(std::current_exception());
      lock.lock();
    }
    busy_ = false;
    changed_.notify_all();
  }
}

// The front of the queue is this thread's alone: others only add at the back.
void PairChannel::send_one() {
  Message message;
  {
    const std::lock_guard lock(mutex_);
    message = posted_.front();
  }
  const Header header{message.bytes, message.tag};
  epcclComm_t comm = communicator_->handle();
  check(epcclGroupStart(), meeting_.name);
  // What is refused here is told by the end of the group.
  (void)epcclSend(&header, sizeof header, epcclUint8, 1, comm, nullptr);
  if (message.bytes > 0) (void)epcclSend(message.data, message.bytes, epcclUint8, 1, comm, nullptr);
  check(epcclGroupEnd(), meeting_.name);
  {
    const std::lock_guard lock(mutex_);
    posted_.pop_front();
  }
  message.call->run();
}

// Serves posted receives whose messages are already here.
void PairChannel::take_early(std::unique_lock<std::mutex>& lock) {
  while (true) {
    const auto found = std::ranges::find_if(posted_, [this](const Message& message) {
      const auto early = early_.find(message.tag);
      return early != early_.end() && !early->second.empty();
    });
    if (found == posted_.end()) return;
    const Message message = *found;
    posted_.erase(found);
    auto& queue = early_[message.tag];
    const std::vector<std::byte> bytes = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    if (bytes.size() == message.bytes) {
      if (message.bytes > 0) std::memcpy(message.data, bytes.data(), bytes.size());
      message.call->run();
    } else {
      message.call->fail(std::make_exception_ptr(
          c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                c10::str("epccl: ", meeting_.name, ", tag ", message.tag, ": ", bytes.size(),
                                         " bytes came, ", message.bytes, " were expected"))));
    }
    lock.lock();
  }
}

void PairChannel::receive_one() {
  Header header{};
  epcclComm_t comm = communicator_->handle();
  check(epcclRecv(&header, sizeof header, epcclUint8, 0, comm, nullptr), meeting_.name);
  Message message{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(posted_, [&](const Message& posted) {
      return posted.tag == header.tag && posted.bytes == header.bytes;
    });
    // Only the first receive with this tag may have it.
    const auto first =
        std::ranges::find_if(posted_, [&](const Message& posted) { return posted.tag == header.tag; });
    if (found != posted_.end() && found == first) {
      message = *found;
      posted_.erase(found);
    }
  }
  if (message.call) {
    try {
      if (header.bytes > 0)
        check(epcclRecv(message.data, header.bytes, epcclUint8, 0, comm, nullptr), meeting_.name);
    } catch (...) {
      message.call->fail(std::current_exception());
      throw;
    }
    message.call->run();
    return;
  }
  std::vector<std::byte> early(header.bytes);
  if (header.bytes > 0)
    check(epcclRecv(early.data(), early.size(), epcclUint8, 0, comm, nullptr), meeting_.name);
  const std::lock_guard lock(mutex_);
  early_[static_cast<int>(header.tag)].push_back(std::move(early));
}

void PairChannel::fail_all(const std::exception_ptr& why) {
  std::deque<Message> lost;
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    lost.swap(posted_);
  }
  for (const Message& message : lost) message.call->fail(why);
}

}  // namespace epccl_torch
