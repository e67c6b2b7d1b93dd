// What a rank says at WARN while it waits for others to come (EPCCL_WAIT_WARNING), long before it gives up.
#pragma once

#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/long_wait.hpp"
#include "base/settings.hpp"

namespace epccl::runtime {

class Overdue {
 public:
  /// The wait begins, and ends after `timeout` seconds.
  Overdue(int rank, double timeout) : rank_(rank), timeout_(timeout), wait_(now_seconds(), first()) {}

  /// When there is something to say; infinity: never.
  double next() const { return wait_.next(); }
  /// To be called now and then. `missing` says who, or what, has not come.
  template <typename Missing>
  void look(Missing missing) {
    const double now = now_seconds();
    if (wait_.is_due(now) && log::enabled(log::Level::warn, log::init))
      log::warn(log::init, rank_, "has waited {:.0f} s: {}; gives up after {} s", wait_.seconds(now),
                missing(), timeout_);
  }

 private:
  // A wrong value is told where the communicator is made.
  static double first() {
    const auto seconds = settings::get_seconds("EPCCL_WAIT_WARNING");
    return seconds.ok() ? *seconds : 0;
  }

  const int rank_;
  const double timeout_;
  LongWait wait_;
};

}  // namespace epccl::runtime
