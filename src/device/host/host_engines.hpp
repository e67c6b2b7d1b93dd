// The copy engines of the host device, and its one compute worker: threads of this process that do the work of queues.
//
//   queue  copy copy post        engine 0  takes the first item of a queue that can go on, does it, takes another queue's
//   queue  wait copy post        engine 1  ...
//   queue  reduce post           compute worker
//
// A queue that waits holds no engine. An engine that finds nothing to do but waits gives its core away: it yields for a moment,
// then sleeps, longer and longer up to a limit, and looks again. There are engines as long as there are queues.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.hpp"
#include "device/host/host_work.hpp"

namespace epccl::device {

class HostEngines {
 public:
  struct Limits {
    int copy_engines = 2;
    double bytes_per_second = 0;  // of one engine; 0: as fast as it can
    // That copy engines and the compute worker may run on; empty: as the thread that made them.
    std::vector<int> engine_cores, reduction_cores;
  };
  /// What the settings say.
  static Result<Limits> configured();
  /// The process's; made for its first queue, with the limits of that moment.
  static Result<std::shared_ptr<HostEngines>> shared();

  explicit HostEngines(const Limits& limits);
  HostEngines(const HostEngines&) = delete;
  HostEngines& operator=(const HostEngines&) = delete;
  /// All queues must have been removed.
  ~HostEngines();

  std::shared_ptr<WorkLine> add(QueueKind kind);
  /// Waits until it is empty.
  void remove(const std::shared_ptr<WorkLine>& line);
  void append(WorkLine& line, WorkItem item);
  /// Waits until the line is empty.
  Status drain(WorkLine& line);
  bool idle(const WorkLine& line);
  Status failure(const WorkLine& line);

 private:
  /// Keeps an engine to its bandwidth.
  struct Pace {
    double bytes_per_second = 0;
    double free_at = 0;
    void begin();
    void moved(uint64_t bytes);
    void settle() const;
  };

  void stop();
  void work(QueueKind kind);
  WorkLine* next(QueueKind kind, bool& any_waits);
  void pause(std::unique_lock<std::mutex>& lock, double idle_since);
  static Status run(WorkItem& item, bool failed, Pace& pace);
  static void copy(const CopyWork& work, Pace& pace);

  const Limits limits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<WorkLine>> lines_;
  size_t first_ = 0;  // where the next look begins
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace epccl::device
