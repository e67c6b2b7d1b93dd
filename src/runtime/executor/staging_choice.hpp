// Whether an input that peers cannot map is staged, or read where it lies.
//
// To stage it takes a copy more, to read it there a system call a block, in which the kernel looks up every page. Which of the two ends
// the call sooner is a matter of the machine (what a system call takes, how far away other cores' lines are, whether memory keeps up
// with two copies), of the size and of the collective: up to 2.3 times apart, in either direction (docs/performance-history.md, "Memory
// that is not registered"). So both are tried. Ranks need not agree; where they offer as much as each other they try at the same time, and
// what counts is what the calls took the rank that they took longest: where ranks share cores, one rank's time says little.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "runtime/executor/copy_policy.hpp"

namespace epccl::runtime {

/// One thread at a time.
class StagingChoice {
 public:
  enum class Way : uint8_t { staged, direct };

  /// Calls of a kind go the same way in blocks of so many, of which the last ones count: after a change caches hold other things.
  static constexpr unsigned block = 6, counted = 3;
  /// The first block is staged, the second is not, and one of so many goes the way that the others do not.
  static constexpr unsigned period = 128;

  /// What a trial found: seconds a byte of either way, and which one is gone from now on.
  struct Found {
    Way way;
    double staged, direct;
  };

  explicit StagingChoice(StagingUse use = StagingUse::automatic) : use_(use) {}

  /// Calls that are compared: of one operation (a call's text up to the first space), which offer peers about as many bytes. Not 0.
  static uint16_t kind(std::string_view text, uint64_t bytes);

  /// For a call.
  Way choose(uint16_t kind);
  /// That call is over, and well, took so long, and offered so much. Tells what the first trial of its kind found, and each that changes
  /// the way.
  std::optional<Found> took(double seconds, uint64_t bytes);

 private:
  struct Kind {
    unsigned calls = 0;  // before the one that is under way
    Way way = Way::staged;
    double counted = 0;                // seconds a byte, of this block's calls that count
    std::array<double, 2> of_block{};  // likewise, of each way's last block

    bool is_trial() const;
    Way now() const;
    std::optional<Found> took(double seconds_a_byte);
  };

  StagingUse use_;
  std::unordered_map<uint16_t, Kind> kinds_;
  Kind* kind_ = nullptr;
};

}  // namespace epccl::runtime
