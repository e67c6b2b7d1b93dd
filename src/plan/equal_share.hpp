// Transfers in virtual time that get equal rates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace epccl::plan {

/// Virtual time in picoseconds.
using Ticks = int64_t;
inline constexpr Ticks never = INT64_MAX;
inline constexpr Ticks longest = Ticks{1} << 60;  // about 13 days: no simulation goes on for longer
inline constexpr double ticks_per_second = 1e12;
Ticks to_ticks(double seconds);
double to_seconds(Ticks ticks);

/// Keeps how many bytes each transfer has been served so far; a transfer that starts notes at which service
/// it ends. So a change of the rate costs the same for one transfer as for thousands.
class EqualShare {
 public:
  bool idle() const { return transfers_.empty(); }
  int transfers() const { return static_cast<int>(transfers_.size()); }
  /// Bytes per tick of each transfer.
  double rate() const { return rate_; }

  /// `name` comes back from end() when `bytes` have been served.
  void start(Ticks now, uint64_t bytes, uint32_t name);
  void set_rate(Ticks now, double rate);
  /// When the next transfer ends if the rate stays.
  Ticks end_at() const;
  /// Takes out the transfers that have ended by `now`, and those that rounding to ticks puts at the same
  /// time.
  void end(Ticks now, std::vector<uint32_t>& ended);

 private:
  struct Transfer {
    double done_at;  // the service at which it ends
    uint32_t name;
  };
  static bool later(const Transfer& a, const Transfer& b);
  void serve(Ticks now);

  std::vector<Transfer> transfers_;  // heap: the next to end in front
  double served_ = 0;                // bytes each has got since the last time there was none
  double rate_ = 0;
  Ticks since_ = 0;  // when served_ was true
};

}  // namespace epccl::plan
