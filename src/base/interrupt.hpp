// Ends the waits of one piece of work from another thread, for good: what waits on descriptors waits on this one as well.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl {

/// Any thread. Once fired it stays so.
class Interrupt {
 public:
  static Result<std::shared_ptr<Interrupt>> create();

  void fire();
  bool fired() const;
  /// Readable once fired.
  int fd() const { return event_.get(); }

 private:
  explicit Interrupt(UniqueFd event) : event_(std::move(event)) {}

  UniqueFd event_;
};

}  // namespace epccl
