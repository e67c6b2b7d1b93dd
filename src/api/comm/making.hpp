// Communicators that are being made. Each is a job: it waits for other ranks.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "api/handles/handles.hpp"
#include "base/interrupt.hpp"
#include "base/status.hpp"
#include "epccl/epccl.h"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

/// Where the program keeps a handle, which other threads may read.
inline void store(epcclComm_t* where, epcclComm_t comm) {
  __atomic_store_n(where, comm, __ATOMIC_RELEASE);
}

/// A communicator that is being made: its handle is there at once, so that it can be asked about and aborted.
class Making {
 public:
  /// `parent`: of a split or shrink, else null. `out` is where the handle goes.
  static Result<std::shared_ptr<Making>> start(epcclComm_t* out, const runtime::CommOptions& options,
                                               int device, HandlePtr parent);

  /// Gives the handle out. Without it there will be no communicator.
  void show();

  bool blocking() const { return blocking_; }
  bool has_parent() const { return parent_ != nullptr; }
  const HandlePtr& parent_handle() const { return parent_; }
  const std::shared_ptr<Interrupt>& interrupt() const { return interrupt_; }
  const HandlePtr& handle() const { return handle_; }
  const runtime::CommOptions& options() const { return handle_->options(); }
  /// Until the end.
  runtime::Communicator& parent() const { return *parent_communicator_; }
  const CommPtr& parent_communicator() const { return parent_communicator_; }
  /// 0: as its config says.
  void set_timeout_of_calls(double seconds) { timeout_of_calls_ = seconds; }
  void keep_parent(CommPtr communicator) { parent_communicator_ = std::move(communicator); }

  /// `take_place` may be empty. Throws nothing: what that throws, and how it fails, is how run() ends.
  void begin(const std::function<Status()>& take_place);
  /// Ends with `work`.
  Status run(const std::function<Status()>& work);
  void cancel();
  /// As cancel(), where nothing of the caller's may be written to: the handle stays, and tells why there is no communicator.
  void drop(const Status& why);
  /// Ends join(), unless all have come. Any thread.
  void stop_waiting();
  /// Joins the others where `gathering` says. Nowhere: this rank is in no new communicator.
  Status join(const std::optional<runtime::Gathering>& gathering);
  /// Tells everybody how it ended; gives `status` back.
  Status end(Status status);

 private:
  void forget();

  epcclComm_t* out_ = nullptr;
  epcclComm_t comm_ = nullptr;
  HandlePtr handle_, parent_;
  CommPtr parent_communicator_;
  std::shared_ptr<Interrupt> interrupt_;
  bool blocking_ = true;
  Status begun_;
  double timeout_of_calls_ = 0;
  std::mutex mutex_;
  bool has_met_ = false;  // from then on the interrupt is the communicator's
};

using MakingPtr = std::shared_ptr<Making>;

/// Runs it, or keeps it where a group is open: `begin`, which may be empty, at once; `run`, which does the work, on any thread.
Status submit_making(const MakingPtr& making, const std::function<Status()>& begin,
                     const std::function<Status()>& run);

}  // namespace epccl::api
