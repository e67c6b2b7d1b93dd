// Calls on a GPU that their threads wait for (runtime/streams/first_calls.hpp).
#pragma once

#include <memory>
#include <utility>

#include "api/groups/group.hpp"
#include "base/status.hpp"

namespace epccl::api {

/// A call that its thread may have to wait for (runtime::FirstCalls), unless a group is open, whose end does.
class FirstCall {
 public:
  explicit FirstCall(const TurnPtr& turn);
  /// Until the call is over, or queued; or else its stream waits for it.
  Status wait() const;
  /// What became of the issuing, after that. In a statement of its own: what a call was given by value lives as long as its statement.
  Status wait_if(Status issued) const { return issued.ok() ? wait() : std::move(issued); }

 private:
  runtime::Turn::Wait wait_;
  std::weak_ptr<runtime::Turn> turn_;
};

}  // namespace epccl::api
