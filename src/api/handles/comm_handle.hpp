// What an epcclComm_t stands for, from the moment it is being made until it is destroyed:
//
//   being made --> usable --> finalized          (of these three the communicator itself knows the last)
//        \--> failed
//
// Beside that, work in the background may be under way on it: what a nonblocking communicator was asked for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/interrupt.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

using CommPtr = std::shared_ptr<runtime::Communicator>;

/// Any thread.
class CommHandle {
 public:
  /// `derived`: by a split or shrink.
  CommHandle(runtime::CommOptions options, int device, bool derived)
      : options_(std::move(options)), device_(device), derived_(derived) {}

  const runtime::CommOptions& options() const { return options_; }
  int device() const { return device_; }
  bool blocking() const { return options_.blocking; }

  /// The communicator; or why it cannot be used: it is still being made, something is under way in the background, that failed.
  Result<CommPtr> communicator() const;
  /// The communicator as far as there is one, whatever is going on; else null.
  CommPtr made() const;

  /// Changes whenever what communicator() returns may have, of any handle of the process: what it returned before stands until then.
  static uint64_t changes();

  /// What epcclCommGetAsyncError tells: in_progress, the failure, or ok.
  Status async_error() const;
  /// A failure in the background, ok before.
  Status failure() const;

  /// The communicator is there. False when the handle was aborted meanwhile: then it is aborted as well.
  bool complete(CommPtr communicator);
  /// Gives the communicator up, for who destroys it: nobody finds it here any more.
  CommPtr take();
  /// Making it failed.
  void fail(const Status& status);

  /// Work in the background begins, and ends as `status` says; what it failed with is told until more of it begins.
  void begin_background();
  void end_background(const Status& status);

  /// Work that epcclCommAbort() must be able to end, beside that of the communicator itself.
  void add_interrupt(const std::shared_ptr<Interrupt>& interrupt);
  void remove_interrupt(const std::shared_ptr<Interrupt>& interrupt);
  /// Ends what splits and shrinks of it are making.
  void interrupt();
  /// Ends everything, and waits until nothing of it is in the background any more. What a split or shrink is making it does not
  /// wait for: that may still wait for the parent's ranks.
  void abort();

 private:
  Status usable() const;

  const runtime::CommOptions options_;
  const int device_;
  const bool derived_;

  mutable std::mutex mutex_;
  std::condition_variable quiet_;
  CommPtr communicator_;
  Status failure_;  // of making it
  int background_ = 0;
  Status background_failure_;
  bool aborted_ = false;
  std::vector<std::shared_ptr<Interrupt>> interrupts_;
};

using HandlePtr = std::shared_ptr<CommHandle>;

}  // namespace epccl::api
