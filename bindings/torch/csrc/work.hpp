// One call of a process group: what it does, and whether it is done.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "program_end.hpp"
#include "versions.hpp"

namespace epccl_torch {

/// What becomes of a call's future, as a future c10d::WorkResult.
c10::intrusive_ptr<c10::ivalue::Future> result_of(c10::ivalue::Future& future);

class Call : public c10d::Work {
 public:
  struct What {
    c10d::OpType type;
    const char* name;  // for profiles: a literal, "epccl:" and a word
    std::vector<at::Tensor> inputs = {};
    std::vector<at::Tensor> outputs = {};
    std::chrono::milliseconds timeout = std::chrono::milliseconds(-1);  // of wait(); negative: none
    bool async = true;
    uint64_t sequence = 0;
    int source = -1;                                  // of a receive
    std::chrono::milliseconds patience = kNoTimeout;  // how long it waits for silent ranks

    /// For messages, which begin with "epccl: " themselves.
    const char* word() const { return name + sizeof("epccl:") - 1; }
  };
  Call(int rank, What what, std::function<void()> body);
  ~Call() override { let_go(what_.inputs, what_.outputs, body_, future_); }

  /// Runs the body and completes this with what came of it. Once, by one thread.
  void run();
  /// The two halves of run(): the body, and what came of it; telling that.
  std::exception_ptr make();
  void complete(std::exception_ptr failure);
  /// Completes without running.
  void fail(std::exception_ptr why);

  /// Of a receive from any rank, before it runs: whose message it is.
  void came_from(int source) { what_.source = source; }

  bool async() const { return what_.async; }
  const char* word() const { return what_.word(); }

  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override { wait(); }  // it is host memory
  std::vector<at::Tensor> result() override { return what_.outputs; }
  int sourceRank() const override { return what_.source; }
  uint64_t getSequencenumber() const override { return what_.sequence; }
  std::chrono::milliseconds getTimeout() const EPCCL_OVERRIDES_SINCE_2_15 { return what_.patience; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  /// Of a c10d::WorkResult: never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

 private:
  What what_;
  std::function<void()> body_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

using CallPtr = c10::intrusive_ptr<Call>;

/// Runs calls one after the other: in a thread of its own, or in the caller's where the call is synchronous and nothing is before it.
/// Callbacks of a call's future are run before the next call begins, and calls that they issue are run at once: so they may wait for
/// them (as PowerSGD's do), and the calls of all ranks keep one order. For that a callback must be attached before the next call is
/// issued: to a call that is complete already it is attached too late, and runs wherever the program is by then.
class Queue {
 public:
  Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue();

  void issue(const CallPtr& call);
  /// Waits until nothing is left.
  void drain();
  /// Fails what has not begun.
  void clear(const std::string& why);
  /// Whether the bodies of all calls have run. Some may still be telling it: who hears it may end the group at once, and then nothing is unfinished.
  bool idle() const;
  /// Waits until no call is under way, at most so long.
  void rest(std::chrono::milliseconds at_most);
  /// Ends the thread once nothing is left.
  void stop();

 private:
  void serve();
  void run(Call& call);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CallPtr> waiting_;
  bool busy_ = false, over_ = false;
  std::atomic<int> unfinished_{0};  // calls whose bodies have not run to their ends
  std::thread thread_;              // made for the first asynchronous call
};

}  // namespace epccl_torch
