// Where ranks of a communicator can meet again, without what first brought them together: its process may be dead.
//
// Every rank opens one when it joins, and all know all of them. Until it is needed it is a socket that listens, nothing more.
// When some ranks are to make a new communicator, the first of them serves, and all of them join there.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "runtime/bootstrap/unique_id.hpp"

namespace epccl::runtime {

class Hub;

/// One thread at a time.
class MeetingPoint {
 public:
  static Result<std::unique_ptr<MeetingPoint>> open();
  MeetingPoint() = default;
  MeetingPoint(const MeetingPoint&) = delete;
  MeetingPoint& operator=(const MeetingPoint&) = delete;
  /// Groups that have met here keep the rendezvous until they are gone.
  ~MeetingPoint();

  /// For Bootstrap::join(), with a session number that those who are to meet agree on.
  const UniqueId& id() const { return id_; }
  /// Lets in who comes. May be called again.
  Status serve();

 private:
  UniqueId id_;
  std::shared_ptr<Hub> hub_;
  bool served_ = false;
};

}  // namespace epccl::runtime
