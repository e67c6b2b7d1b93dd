// How many streams of GPUs wait for threads of this process, and what is put off meanwhile: to free, unmap or unregister memory may wait
// for the whole GPU inside the driver, which lets no other call in until then, not those either that a held stream waits for.
//
//   thread A    holds a stream -------------------> lets it go, frees for B
//   thread B          frees: put off, goes on
//   thread C                                          holds a stream: only when that is freed
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>

namespace epccl::device {

class HeldStreams {
 public:
  /// A stream is held while it lives. The last to end does what was put off.
  class Hold {
   public:
    enum class Begins : uint8_t {
      after_frees,  // when nothing is being freed, nor made; after a pause, where something has been put off for long
      at_once,  // of a stream that waits already
    };
    explicit Hold(Begins begins = Begins::after_frees);
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold();
    /// It does not only put off what may wait for the GPU: now a stream waits, for threads of the ranks of one communicator, by a number of
    /// its own; 0: of several.
    void stream_waits(uint64_t communicator = 0);
    /// All that the stream waits for is queued on GPUs.
    void stream_needs_no_thread();

   private:
    void uncount();

    bool waits_ = false;
    uint64_t communicator_ = 0;
  };

  /// Work of a GPU that no stream is held for, but that waits for other ranks now and then: while `waits` says that it does, what may wait for
  /// the GPU is put off, too. So it is while `may_begin` says that such work may begin at any time, and wait for a thread of this process;
  /// but not more than `most_for_what_begins` at a time. Both only read memory. Whoever sees that it is not so any more calls retry() or
  /// retry_beside().
  static constexpr size_t most_for_what_begins = 64;
  class Waiting {
   public:
    explicit Waiting(
        std::function<bool()> waits, std::function<bool()> may_begin = [] { return false; });
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    ~Waiting();

   private:
    friend class HeldStreams;
    const std::function<bool()> waits_, may_begin_;
  };
  /// Whether a stream waits for a thread of this process now, or may because of a graph, or what Waiting says. Streams that wait for ranks
  /// of `except_of` do not count; 0: all do.
  static bool wait_for_threads(uint64_t except_of = 0);
  /// Does what was put off, unless it still has to be.
  static void retry();
  /// The same in another thread: for who must not wait for the GPU.
  static void retry_beside();

  /// What may wait for the GPU and cannot be put off: making queues, and memory. Where none was held, no stream
  /// of the process becomes so while it lives.
  class Quiet {
   public:
    enum class Waits : uint8_t {
      for_a_moment,  // not long: those that hold may be waiting for the caller
      not_at_all,    // of a call that holds its stream itself
    };
    /// Waits until none is held. After that it keeps nobody from holding more, for which those that hold may be waiting, too. For streams that
    /// one has waited for in vain it does not wait again, until one of them is let go. To end in its thread.
    explicit Quiet(Waits waits = Waits::for_a_moment);
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;
    ~Quiet();

   private:
    bool keeps_out_ = false;
  };

  /// Does `work` now where no stream is held, and nothing waits, else later. It holds nothing.
  static void when_none(std::function<void()> work);
  /// Waits until nothing is put off, at most so long. Whether anything was. What the calling thread itself keeps quiet for does not count.
  static bool settle(double seconds);

  /// Where something has been put off for so long, holds that begin wait for all others to end.
  struct Pauses {
    std::chrono::milliseconds after{5000}, longest{50};
  };
  /// For tests. What was set before.
  static Pauses set_pauses(const Pauses& pauses);

 private:
  enum class Waits : uint8_t { none, may_begin, some };
  static Waits who_waits();
  static bool must_put_off();
  static void retry(std::unique_lock<std::mutex> lock);
};

}  // namespace epccl::device
