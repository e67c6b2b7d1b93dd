// A call's place in the order of its communicator's calls.
#pragma once

#include <cstdint>
#include <utility>

#include "api/handles/comm_handle.hpp"

namespace epccl::api {

/// Given back at its end, unless the call runs: calls behind it would wait for ever for one that was taken and then not queued, for want of
/// memory.
class Ticket {
 public:
  Ticket() = default;
  explicit Ticket(CommPtr communicator)
      : communicator_(std::move(communicator)), number_(communicator_->take_ticket()) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept {
    std::swap(communicator_, other.communicator_);
    std::swap(number_, other.number_);
    return *this;
  }
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;
  ~Ticket() {
    if (communicator_ != nullptr) communicator_->pass(number_);
  }

  /// For runtime::Communicator::run(), which ends the turn whatever comes of the call.
  uint64_t use() {
    communicator_.reset();
    return number_;
  }

 private:
  CommPtr communicator_;
  uint64_t number_ = 0;
};

}  // namespace epccl::api
