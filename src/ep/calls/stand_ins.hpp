// Memory of the library that stands in, for one call, for arrays of the user that ranks of the node cannot map.
//
// They could be read and written where they lie, by process_vm_readv and process_vm_writev, but for every row the kernel looks up its
// pages: a copy into memory that all have mapped costs less (docs/performance-history.md, "Tensors that are not registered").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/handle/handle.hpp"
#include "ep/handle/window_pool.hpp"

namespace epccl::ep {

class StandIns {
 public:
  explicit StandIns(const Handle& handle);

  /// Whether the node's other ranks can use `data` where it lies; of NULL, or where there are none, they can.
  bool reaches(const void* data, uint64_t bytes) const;

  /// `data`, an array of `rows`, or what stands in for it: the same where it is `used`. `call_bytes`: that the call reads and writes here
  /// in all.
  Result<const void*> input(const void* data, uint64_t rows, uint64_t row_bytes,
                            std::span<const RowRange> used, uint64_t call_bytes);

  /// Memory that they can map, of undefined content, until the end of the call.
  Result<void*> lend(uint64_t bytes);

 private:
  Group& group_;
  const bool alone_;  // or with ranks that have the same addresses only
  std::vector<WindowPool::Loan> loans_;
};

}  // namespace epccl::ep
