// The other collectives, and sends and receives around the ring.
#pragma once

#include <optional>
#include <vector>

#include "perf/src/call.hpp"
#include "perf/src/check.hpp"

namespace epccl::perf {

/// The operation that a call reduces with; one of the library's, or made for a communicator.
class ReduceOperation {
 public:
  /// `scalar`: mulsum's on this rank.
  static Result<ReduceOperation> make(Communicator& communicator, RedOp op, const DataType& type,
                                      uint64_t scalar);
  ReduceOperation(ReduceOperation&& other) noexcept;
  ReduceOperation& operator=(ReduceOperation&& other) noexcept;
  ~ReduceOperation();

  epcclRedOp_t get() const { return op_; }

 private:
  explicit ReduceOperation(epcclRedOp_t op) : op_(op) {}

  epcclRedOp_t op_;
  Communicator* owner_ = nullptr;  // null: one of the library's own
};

class Collective final : public Call {
 public:
  Collective(RowKey key, int rank);

  uint64_t input_bytes() const override { return extent_.input * type().bytes; }
  uint64_t output_bytes(bool in_place) const override;
  Operands place(const Buffer& input, const Buffer& output, bool in_place) const override;
  Status attach(Communicator& communicator) override;
  Status issue(Communicator& communicator, const Operands& operands, epcclStream_t stream) const override;
  void prepare(const Operands& operands, uint64_t number) const override;
  uint64_t check(const Operands& operands, uint64_t number, const std::string& title) const override;

 private:
  /// Blocks of `count` elements, in order.
  std::vector<BlockId> sent_blocks(uint64_t number) const;
  std::vector<BlockId> received_blocks(uint64_t number) const;
  Status exchange_in_ring(epcclComm_t comm, const Operands& operands, epcclStream_t stream) const;

  int rank_;
  Extent extent_;
  std::optional<ReduceOperation> reduce_operation_;
};

}  // namespace epccl::perf
