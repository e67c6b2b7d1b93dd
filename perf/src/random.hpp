// Numbers that are the same on every machine: the standard library's distributions are not.
#pragma once

#include <cstdint>

namespace epccl::perf {

/// A full-avalanche finalizer: neighbouring inputs have nothing in common.
constexpr uint64_t avalanche(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline constexpr uint64_t golden = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio

/// A number that depends on all three.
constexpr uint64_t mix(uint64_t a, uint64_t b, uint64_t c) {
  return avalanche(avalanche(avalanche(a + golden) ^ (b + golden * 3)) ^ (c + golden * 5));
}

/// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() { return avalanche(state_ += golden); }
  /// 0 .. limit - 1.
  uint64_t below(uint64_t limit) {
    __extension__ typedef unsigned __int128 Wide;
    return static_cast<uint64_t>(static_cast<Wide>(next()) * limit >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace epccl::perf
