// Wrong data of one rank, told on standard error and counted.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "perf/src/check.hpp"
#include "perf/src/datatype.hpp"

namespace epccl::perf {

class Complaints {
 public:
  Complaints(int rank, const DataType& type, const std::string& title)
      : rank_(rank), type_(type), title_(title) {}

  /// Adds what is wrong with a part of the output that begins at element `offset`; only the first is described. `what`:
  /// "data from rank 3".
  void add(const BlockCheck& found, const std::string& what, uint64_t offset, uint64_t elements);
  /// Bytes behind the output that were written.
  void add_guard(std::span<const std::byte> guard);

  uint64_t wrong() const { return wrong_; }

 private:
  int rank_;
  const DataType& type_;
  const std::string& title_;
  uint64_t wrong_ = 0;
};

}  // namespace epccl::perf
