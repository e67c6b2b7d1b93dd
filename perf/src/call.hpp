// One collective with its counts, as this rank calls it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "perf/src/buffers.hpp"
#include "perf/src/report.hpp"

namespace epccl::perf {

/// What a call reads and writes, and the guard behind what it writes.
struct Operands {
  std::span<std::byte> input, output, guard;
};

class Call {
 public:
  explicit Call(RowKey key) : key_(std::move(key)) {}
  virtual ~Call() = default;

  /// What the rows of its results begin with.
  const RowKey& key() const { return key_; }

  /// Bytes of this rank's two buffers; in place there is only an output.
  virtual uint64_t input_bytes() const = 0;
  virtual uint64_t output_bytes(bool in_place) const = 0;
  virtual Operands place(const Buffer& input, const Buffer& output, bool in_place) const = 0;

  /// What has to be made with a communicator before calls on it.
  virtual Status attach(Communicator& /*communicator*/) { return {}; }
  /// Issues the call, without waiting for a stream.
  virtual Status issue(Communicator& communicator, const Operands& operands, epcclStream_t stream) const = 0;

  /// Fresh data, with poison where the output will be. `number` tells exchanges apart.
  virtual void prepare(const Operands& operands, uint64_t number) const = 0;
  /// Wrong elements of this rank's output; the first is described on standard error. A write behind the end
  /// counts as wrong elements too. `title` says what was run.
  virtual uint64_t check(const Operands& operands, uint64_t number, const std::string& title) const = 0;

 protected:
  const DataType& type() const { return key_.type; }

 private:
  RowKey key_;
};

}  // namespace epccl::perf
