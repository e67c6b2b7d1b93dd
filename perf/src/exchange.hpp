// One collective with its counts, as this rank calls it.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/src/buffers.hpp"
#include "perf/src/options.hpp"
#include "perf/src/pattern.hpp"

namespace epccl::perf {

class Exchange {
 public:
  Exchange(Operation operation, DataType type, CountMatrix counts, int rank);

  const DataType& type() const { return type_; }
  const CountMatrix& counts() const { return counts_; }
  uint64_t sent_bytes() const { return sent_elements_ * type_.bytes; }
  uint64_t received_bytes() const { return received_elements_ * type_.bytes; }

  /// Issues the call, and waits for it where there is a stream.
  Status call(Communicator& communicator, const Buffer& input, const Buffer& output,
              epcclStream_t stream) const;

  /// Fresh input for every destination, and poison over output and guard. `number` tells exchanges apart.
  void prepare(const Buffer& input, const Buffer& output, uint64_t number) const;

  /// Wrong elements of this rank's output; the first is described on standard error. A write behind the end
  /// counts as wrong elements too. `title` says what was run.
  uint64_t check(const Buffer& output, uint64_t number, const std::string& title) const;

 private:
  Operation operation_;
  DataType type_;
  CountMatrix counts_;
  int rank_;
  std::vector<size_t> sent_counts_, sent_offsets_, received_counts_, received_offsets_;
  uint64_t sent_elements_ = 0, received_elements_ = 0;
};

}  // namespace epccl::perf
