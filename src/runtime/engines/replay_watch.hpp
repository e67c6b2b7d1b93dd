// Looks after replays of captured calls: no call waits for them, so a thread does. A communicator that failed, or a replay in which
// nothing moves for the timeout, lets all replays of this rank through, and the failure is the communicator's.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/status.hpp"
#include "runtime/queues/graph_room.hpp"

namespace epccl::runtime {

class ReplayWatch {
 public:
  struct Owner {
    int rank = 0;
    double timeout_seconds = 30;
    std::function<int(int)> rank_at;            // by local position
    std::function<Status()> check;              // the communicator's failure, ok before
    std::function<void(const Status&)> failed;  // tells it of one
    std::function<void()> timed_out;  // a replay is let go so, and failed() will say what it waited for
  };

  ReplayWatch(std::shared_ptr<GraphRoom> room, Owner owner);
  ReplayWatch(const ReplayWatch&) = delete;
  ReplayWatch& operator=(const ReplayWatch&) = delete;
  ~ReplayWatch();

 private:
  struct Seen {
    uint64_t begun = 0, over = 0, step = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
  };

  void watch();
  /// Ok: go on.
  Status look();
  Seen see() const;
  Status mismatch(uint64_t other) const;
  Status timed_out();

  const std::shared_ptr<GraphRoom> room_;
  const Owner owner_;
  Seen last_;
  double since_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_ending_ = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace epccl::runtime
