// Where the time of a call goes: queues and waiting threads tell, while somebody measures.
//
//   the call's thread        |- restart() ---------------------------------- split() -|
//   kernels of its queues             |######|         |####|
//   copies of its queues           |xxxxxxxxx|
//   a wait for other ranks                      |wwww|
//                                  xxx ######    wwww   ####     the rest is the host's
//
// Each moment counts once: for a kernel if one of this rank runs, else for a copy, else for a wait for other ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.hpp"
#include "base/status.hpp"

namespace epccl::device {

enum class WorkKind : uint8_t {
  kernel,  // also a reduction by the host's worker
  copy,
  signal,  // waits for other ranks: of a queue, or of the call's thread
};

/// On the clock of now_seconds().
struct WorkSpan {
  WorkKind kind = WorkKind::kernel;
  double begin = 0, end = 0;
};

/// Seconds.
struct TimeSplit {
  double total = 0, kernel = 0, copy = 0, signal = 0;
  double host() const { return total - kernel - copy - signal; }
};

/// Of what lies between `begin` and `end`.
TimeSplit split_of(const std::vector<WorkSpan>& spans, double begin, double end);

/// Of one call at a time.
class WorkTimes : public std::enable_shared_from_this<WorkTimes> {
 public:
  /// Spans of a device that it knows only when its work is through.
  class OnDevice {
   public:
    virtual ~OnDevice() = default;
    /// Adds what was begun since it was asked last. All of it is through, or about to be: waits for that.
    virtual Status collect(std::vector<WorkSpan>& spans) = 0;
    /// Forgets it instead; it may still run.
    virtual void forget() = 0;
  };

  WorkTimes() = default;
  WorkTimes(const WorkTimes&) = delete;
  WorkTimes& operator=(const WorkTimes&) = delete;

  /// The call begins now: what was told before is forgotten.
  void restart();
  /// On the clock of now_seconds().
  double begin() const { return begin_; }
  /// The number of the call, where all ranks wait for all in it, and know it by that; 0: not so. For its thread.
  void set_number(uint64_t number) { number_ = number; }
  uint64_t number() const { return number_; }
  /// That of the call within which this one is made by its thread; null: it is made by itself.
  WorkTimes* outer() const { return outer_; }
  /// Any thread.
  void add(WorkKind kind, double begin, double end);
  /// That of a device, made when it is first asked for. For the call's thread.
  template <typename Make>
  OnDevice& on_device(const void* device, Make make) {
    for (const auto& known : on_devices_)
      if (known.device == device) return *known.spans;
    return *on_devices_.emplace_back(Known{device, make()}).spans;
  }
  /// The call ends now, and nothing of it runs any more. For its thread.
  Result<TimeSplit> split();

  /// What the calling thread's work is told to; null: nobody measures.
  static WorkTimes* current() { return current_; }
  /// Makes it that while it lives.
  class Scope {
   public:
    explicit Scope(std::shared_ptr<WorkTimes> times);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    const std::shared_ptr<WorkTimes> times_;
    WorkTimes* const before_;
  };

 private:
  struct Known {
    const void* device;
    std::unique_ptr<OnDevice> spans;
  };

  static inline thread_local constinit WorkTimes* current_ = nullptr;

  double begin_ = now_seconds();
  uint64_t number_ = 0;
  WorkTimes* outer_ = nullptr;
  std::mutex mutex_;
  std::vector<WorkSpan> spans_;
  std::vector<Known> on_devices_;
};

}  // namespace epccl::device
