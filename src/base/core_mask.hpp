// The cores that threads may run on, on machines of any size: a cpu_set_t ends at core 1023, and the kernel of a larger machine does not
// tell its threads' cores to what is too small for them.
#pragma once

#include <span>
#include <vector>

namespace epccl {

/// More than any machine has.
inline constexpr int most_cores = 65536;

class CoreMask {
 public:
  /// Each from 0 on and below `most_cores`.
  explicit CoreMask(std::span<const int> cores);
  /// Those that the calling thread may run on; none where the kernel does not say.
  static CoreMask of_this_thread();
  /// Every core there may be. The kernel takes those of them that the process may use.
  static CoreMask all();

  bool has(int core) const;
  /// Ascending.
  std::vector<int> cores() const;
  /// From now on the calling thread runs on no others. False: errno says why not.
  bool apply() const;

 private:
  CoreMask() = default;

  std::vector<unsigned long> words_;  // as the kernel has them
};

/// CoreMask::of_this_thread().cores()
std::vector<int> allowed_cores();

}  // namespace epccl
