// A host stream as a queue: what is queued is work of the stream's thread, or, without a stream, of the calling thread.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "device/host/host_copy.hpp"
#include "device/host/host_queue.hpp"
#include "device/host/host_stream.hpp"

namespace epccl::device {
namespace {

/// Gives the core away: yields for a moment, then sleeps.
template <typename Ready>
void wait_until(Ready ready) {
  constexpr double yield_seconds = 50e-6, longest_sleep = 1e-3;
  for (const double begin = now_seconds(); !ready();) {
    const double waited = now_seconds() - begin;
    if (waited < yield_seconds)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(waited / 8, longest_sleep)));
  }
}

/// The first thing that went wrong. Outlives the queue, since its work may.
class Failure {
 public:
  void keep(Status status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
  }
  Status get() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  mutable std::mutex mutex_;
  Status status_;
};

class BorrowedStream : public Queue {
 public:
  explicit BorrowedStream(HostStream* stream) : stream_(stream) {}
  BorrowedStream(const BorrowedStream&) = delete;
  BorrowedStream& operator=(const BorrowedStream&) = delete;
  ~BorrowedStream() override {
    if (auto last = last_) wait_until([&last] { return last->reached.load(std::memory_order_acquire); });
  }

  Status copy(std::span<const CopyWork> copies) override {
    return put(true, [works = std::vector<CopyWork>(copies.begin(), copies.end())]() -> Status {
      for (const CopyWork& work : works)
        copy_rows(work.destination, work.destination_stride, work.source, work.source_stride, work.bytes,
                  work.rows, false);
      return {};
    });
  }
  Status reduce(const ReduceWork& work) override {
    return put(true,
               [work, sources = std::vector<ReduceSource>(work.sources.begin(), work.sources.end()),
                also = std::vector<std::byte*>(work.also.begin(), work.also.end())]() -> Status {
                 device::reduce(work.reduction, sources, work.final, work.destination, work.elements, also);
                 return {};
               });
  }
  Status post(SignalWord& word, uint64_t value) override {
    return put(false, [&word, value]() -> Status {
      post_and_tell(word, value);
      return {};
    });
  }
  Status wait(const SignalWord& word, uint64_t value) override {
    return put(false, [&word, value]() -> Status {
      wait_until([&] { return word.load(std::memory_order_acquire) >= value; });
      return word.load(std::memory_order_acquire) >= released ? released_failure() : Status{};
    });
  }
  Status record(QueueEvent& event) override {
    auto* host = dynamic_cast<HostQueueEvent*>(&event);
    if (host == nullptr) return {Code::invalid_argument, "an event of another device in a host stream"};
    return put(false, reach(host->mark()));
  }
  Status wait(const QueueEvent& event) override {
    const auto* host = dynamic_cast<const HostQueueEvent*>(&event);
    if (host == nullptr) return {Code::invalid_argument, "an event of another device in a host stream"};
    auto mark = host->last();
    if (mark == nullptr) return {};
    return put(false, [mark]() -> Status {
      wait_until([&mark] { return mark->reached.load(std::memory_order_acquire); });
      return {};
    });
  }
  void set_blocks(int /*blocks*/) override {}

  Status synchronize() override {
    if (auto last = last_) wait_until([&last] { return last->reached.load(std::memory_order_acquire); });
    return failure();
  }
  Result<bool> idle() override { return last_ == nullptr || last_->reached.load(std::memory_order_acquire); }
  Status failure() const override { return failure_->get(); }

 private:
  static HostStream::Work reach(std::shared_ptr<HostMark> mark) {
    return [mark = std::move(mark)]() -> Status {
      mark->reached.store(true, std::memory_order_release);
      return {};
    };
  }

  /// `moves`: left out once something has failed. What goes wrong is the stream's failure as well.
  Status put(bool moves, HostStream::Work work) {
    auto run = [failure = failure_, moves, work = std::move(work)]() -> Status {
      if (moves && !failure->get().ok()) return {};
      Status status = work();
      if (!status.ok()) failure->keep(status);
      return status;
    };
    if (stream_ == nullptr) {
      static_cast<void>(run());
      return {};
    }
    stream_->enqueue(std::move(run));
    last_ = std::make_shared<HostMark>();
    stream_->enqueue(reach(last_));
    return {};
  }

  HostStream* const stream_;
  const std::shared_ptr<Failure> failure_ = std::make_shared<Failure>();
  std::shared_ptr<HostMark> last_;  // the end of what was queued
};

}  // namespace

Result<std::unique_ptr<Queue>> borrow_host_stream(void* stream) {
  HostStream* known = stream == nullptr ? nullptr : find_stream(stream);
  if (stream != nullptr && known == nullptr)
    return error(Code::invalid_argument, "{} is not a stream of epcclStreamCreate", stream);
  return std::unique_ptr<Queue>(std::make_unique<BorrowedStream>(known));
}

}  // namespace epccl::device
