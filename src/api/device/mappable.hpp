// Buffers of a call on GPU memory over several nodes, where only the ranks of one node see who can map what: what cannot be mapped is
// replaced before the call by memory that can, so that all nodes run the same plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.hpp"
#include "runtime/comm/communicator.hpp"

namespace epccl::api {

/// One buffer.
class MappableBuffer {
 public:
  using Pieces = std::vector<runtime::StagedCalls::Piece>;

  /// `pieces`: the parts of it that the call uses. To be made before the call's turn, since it may allocate.
  static Result<MappableBuffer> make(const runtime::OnDevice& on, const void* buffer, uint64_t bytes,
                                     Pieces pieces);

  std::byte* data() const { return replacement_ != nullptr ? replacement_->data() : buffer_; }
  // Where it is replaced; in the call, whose turn has begun.
  Status copy_in(runtime::StagedCalls& calls) const;
  Status copy_out(runtime::StagedCalls& calls) const;

 private:
  std::byte* buffer_ = nullptr;
  Pieces pieces_;
  runtime::DeviceRooms::Borrowed replacement_;  // null: the buffer is used as it is
};

/// Both buffers of a call.
class MappableBuffers {
 public:
  struct Used {
    const void* buffer = nullptr;
    uint64_t bytes = 0;
    MappableBuffer::Pieces pieces{};  // empty: all of it

    MappableBuffer::Pieces all_pieces() const;
  };
  static Result<MappableBuffers> make(const runtime::OnDevice& on, const Used& input, const Used& output);

  /// Makes the call when its turn has begun, or behind what its stream had: `run` gets it with buffers that peers can map.
  template <typename CallType, typename Run>
  Status run(const runtime::OnDevice& on, const runtime::Turn& turn, CallType call, Run run) const {
    call.behind = turn.behind();
    if (call.behind == nullptr) EPCCL_TRY(on.worker->begun(turn));
    EPCCL_TRY(input_.copy_in(*on.staged));
    call.input = input_.data();
    call.output = output_.data();
    EPCCL_TRY(run(call));
    return output_.copy_out(*on.staged);
  }

 private:
  MappableBuffer input_, output_;
};

}  // namespace epccl::api
