// Lets a GPU go on that waits for a thread of the library, where that thread waits for the GPU.
//
//   user's stream     ... -> waits for a word -------------------------------------> goes on: the call has failed
//   thread of the call       copies, asks, ... cuEventQuery --[not let in]---------> returns, finds the failure
//   another thread                   cudaFree --[in the driver, waits for the GPU]-> returns
//   the watch                                        both wait: for too long  ---> stores the word
//
// No timeout of the call itself can fire then, since its thread is in the driver; nor does it hear that a peer has died, for which queues
// wait, and with them who is in the driver. The watch's thread never calls the driver, and takes no
// lock under which others do.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/status.hpp"
#include "device/driver_call.hpp"

namespace epccl::runtime {

class HoldWatch {
 public:
  /// A thread of the library for which streams wait.
  class Worker {
   public:
    struct Owner {
      std::function<double()> timeout;  // seconds, of one call of the driver
      /// The communicator fails, on all ranks, and what its queues wait for is let through. Called again until the thread goes on.
      std::function<void(Status why)> fail;
      /// Why its calls cannot end well any more, as far as can be heard now; ok: nothing is known.
      std::function<Status()> lost = [] { return Status(); };
      /// Seconds that a call waits for silent ranks.
      std::function<double()> patience = [] { return std::numeric_limits<double>::infinity(); };
    };
    explicit Worker(Owner owner) : owner_(std::move(owner)) {}
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    /// The calling thread is the one.
    void runs_here() { trace_.store(&device::DriverCall::of_this_thread(), std::memory_order_release); }
    /// The owner ends: it is not called any more.
    void close();

   private:
    friend class HoldWatch;
    struct Call {
      const char* name = nullptr;  // of the driver's function; null: it is in none
      double since = 0;
    };
    bool runs_on(const device::DriverCall::Trace& thread);
    Call look(double now);
    double timeout();
    void fail(Status why);
    void fail_if_lost(const Call& call, double seconds);

    std::atomic<device::DriverCall::Trace*> trace_{nullptr};
    uint64_t begun_ = 0;  // when the watch looked last
    double since_ = 0;
    std::mutex mutex_;
    bool is_closed_ = false;
    const Owner owner_;
  };
  using WorkerPtr = std::shared_ptr<Worker>;

  /// What waits.
  enum class Waits : uint8_t {
    stream,  // for the threads
    queues,  // for other ranks alone: but a thread that the driver keeps hears of none that is lost, and notices no timeout
  };
  /// A place where a GPU waits. Its functions only read and write memory.
  struct Hold {
    std::vector<WorkerPtr> workers;  // it waits for all of them
    std::function<bool()> has_come;  // the GPU
    std::function<void()> let_go;    // called again until the threads go on
    Waits waits = Waits::stream;
    std::function<bool()> is_over = [] { return false; };  // nothing waits any more
    std::function<bool()> is_queued = [] {
      return false;
    };  // what the stream waits for: then it waits as queues do
  };
  /// Lets go what waits for the calling thread, whose call has failed: what it has queued may stand behind such a stream in a hardware queue.
  /// The communicators of all that it waits for fail.
  static void let_go_of_this_thread(const Status& why);

  /// It is watched while this lives.
  class Ticket {
   public:
    explicit Ticket(Hold hold) : number_(of_process().watch(std::move(hold))) {}
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    ~Ticket() { of_process().forget(number_); }

   private:
    const uint64_t number_;
  };

 private:
  static HoldWatch& of_process();
  uint64_t watch(Hold hold);
  void forget(uint64_t ticket);
  struct Watched {
    Hold hold;
    double since = 0;      // the GPU is there; 0: it has not come yet
    bool is_told = false;  // that it was let go
  };
  void run();
  static void look_at(Watched& watched, double now);
  static void listen_for(Watched& watched, double now);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<uint64_t, Watched> holds_;
  uint64_t last_ticket_ = 0;
  bool is_running_ = false, is_asleep_ = false;
};

}  // namespace epccl::runtime
