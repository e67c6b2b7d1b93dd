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

namespace epccl::runtime {

/// One thread at a time.
class StagingChoice {
 public:
  enum class Way : uint8_t { staged, direct };

  /// Calls of a kind go the same way in blocks of so many, of which the last ones count: after a change caches hold other things.
  static constexpr unsigned block = 6, counted = 3;
  /// The first block is staged, the second is not, and one of so many goes the way that the others do not.
  static constexpr unsigned period = 128;

  /// Calls that are compared: those that offer peers about as many bytes, of whatever collective. 1 to 65.
  static uint8_t kind(uint64_t bytes);

  /// For a call.
  Way choose(uint8_t kind);
  /// That call is over, and well, and took so long.
  void took(double seconds);

 private:
  struct Kind {
    unsigned calls = 0;  // before the one that is under way
    Way way = Way::staged;
    double counted_seconds = 0;
    std::array<double, 2> block_seconds{};  // of each way's last block

    bool is_trial() const;
    Way now() const;
    void took(double seconds);
  };

  std::array<Kind, 66> kinds_;
  Kind* kind_ = nullptr;
};

}  // namespace epccl::runtime
