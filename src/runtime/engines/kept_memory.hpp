// Memory of the library that other ranks of the process use as it is, by its address: their graphs keep it.
#pragma once

#include <memory>

namespace epccl::runtime {

class KeptMemory {
 public:
  /// `memory`: who holds it keeps what begins at `address`. Any thread, as of all of this.
  static void add(const void* address, const std::shared_ptr<const void>& memory);
  /// Null: nothing that is still there begins at `address`.
  static std::shared_ptr<const void> at(const void* address);
};

}  // namespace epccl::runtime
