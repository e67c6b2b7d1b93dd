// Who writes into graphs, and when. One thread of the process at a time: streams of several ranks may be captured into one graph, which no two
// threads may write into at once. A thread that makes calls of several communicators together has a thread for each, since they wait for
// other ranks; but it writes what they put into graphs itself, call by call in an order that all ranks share. In another order a replay
// would wait in one call for a rank that waits for this one in another.
//
//   threads of the calls    meet their ranks | hand over what is to be written | go on
//   the thread that serves                     writes, when it is the call's turn
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.hpp"

namespace epccl::runtime {

class GraphWrites {
 public:
  using Write = std::function<Status()>;

  /// Runs `write` while no other thread writes: on this thread or, where its calls are a lane's, on the one that serves the lane.
  static Status run(const Write& write);

  /// The calling thread will serve that many lanes.
  explicit GraphWrites(size_t lanes) : lanes_(lanes) {}
  GraphWrites(const GraphWrites&) = delete;
  GraphWrites& operator=(const GraphWrites&) = delete;

  /// `order`: of all calls that may write, the lane of each. Returns when all of them are over.
  void serve(const std::vector<size_t>& order);

  /// The calling thread's calls are those of a lane while it lives; at its end they are all over.
  class Lane {
   public:
    Lane(GraphWrites& all, size_t lane);
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    ~Lane();
    /// A call that may write is over.
    void call_over();

   private:
    friend class GraphWrites;
    GraphWrites& all_;
    const size_t lane_;
  };

 private:
  struct State {
    size_t over = 0;  // calls
    const Write* handed = nullptr;
    Status written;
  };
  static Status alone(const Write& write);
  Status hand_over(size_t lane, const Write& write);
  void serve_call(State& lane, size_t call);

  const std::thread::id server_ = std::this_thread::get_id();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> lanes_;
};

}  // namespace epccl::runtime
