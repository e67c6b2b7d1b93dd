// Copies to memory that other cores have read, and will read again.
//
// A core that writes to a line which another one has read waits for the line to become its own. Between cores of one last-level cache
// that makes a copy 9 GB/s, between others 2.3 (AMD EPYC, 64 KiB). Stores past the cache make 30, after which the reader gets 17 instead
// of 42. Where the reader runs on the writer's own core there is nothing to wait for. No topology tells which it is, since ranks move
// and virtual machines do not say; so now and then a copy is timed.
#pragma once

#include <cstddef>

namespace epccl::device {

class SharedCopy {
 public:
  /// Smaller ones always go through the cache: readers find them there.
  static constexpr size_t least_past_cache = 4 << 10;

  /// One thread at a time.
  void copy(void* destination, const void* source, size_t bytes);

  /// What a copy through the cache took. Copies since then and until the next go the way that follows from all of them.
  void took(size_t bytes, double seconds);
  bool past_cache() const { return past_cache_; }

 private:
  void time_one(void* destination, const void* source, size_t bytes);

  // The first copies find pages that nobody has touched. After them samples are many, until the average stands on some.
  static constexpr unsigned untimed = 8, most_between_samples = 16;
  unsigned between_samples_ = 0, until_sample_ = untimed;
  unsigned samples_ = 0;
  double seconds_per_byte_ = 0;  // through the cache, on average: each copy may be for another reader
  bool past_cache_ = false;
};

}  // namespace epccl::device
