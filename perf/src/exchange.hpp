// alltoall or alltoallv with its counts.
#pragma once

#include <vector>

#include "perf/src/call.hpp"
#include "perf/src/pattern.hpp"

namespace epccl::perf {

class Exchange final : public Call {
 public:
  /// `grouped`: issued as a group of sends and receives.
  Exchange(RowKey key, bool grouped, const CountMatrix& counts, int rank);

  uint64_t input_bytes() const override { return sent_elements_ * type().bytes; }
  uint64_t output_bytes(bool in_place) const override;
  Operands place(const Buffer& input, const Buffer& output, bool in_place) const override;
  Status issue(Communicator& communicator, const Operands& operands, epcclStream_t stream) const override;
  void prepare(const Operands& operands, uint64_t number) const override;
  uint64_t check(const Operands& operands, uint64_t number, const std::string& title) const override;

 private:
  Status issue_group(epcclComm_t comm, const Operands& operands, epcclStream_t stream) const;

  bool grouped_;
  int rank_;
  std::vector<size_t> sent_counts_, sent_offsets_, received_counts_, received_offsets_;
  uint64_t sent_elements_ = 0, received_elements_ = 0;
};

}  // namespace epccl::perf
