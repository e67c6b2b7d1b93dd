#include "api/device/mappable.hpp"

#include <utility>

#include "base/log.hpp"

namespace epccl::api {

Result<MappableBuffer> MappableBuffer::make(const runtime::OnDevice& on, const void* buffer, uint64_t bytes,
                                            Pieces pieces) {
  MappableBuffer made;
  made.buffer_ = static_cast<std::byte*>(const_cast<void*>(buffer));  // NOLINT: inputs and outputs are alike
  if (bytes == 0 || !on.engines->must_be_replaced(buffer, bytes)) return made;
  log::info_once(log::coll, -1, "{} bytes at {} travel through memory of the library: peers cannot map them",
                 bytes, buffer);
  made.pieces_ = std::move(pieces);
  EPCCL_ASSIGN(made.replacement_, on.rooms->borrow(bytes, device::MemoryKind::shareable));
  return made;
}

Status MappableBuffer::copy_in(runtime::StagedCalls& calls) const {
  return replacement_ == nullptr ? Status{} : calls.copy_pieces_in(pieces_, replacement_->data());
}

Status MappableBuffer::copy_out(runtime::StagedCalls& calls) const {
  return replacement_ == nullptr ? Status{} : calls.copy_pieces_out(pieces_, replacement_->data());
}

MappableBuffer::Pieces MappableBuffers::Used::all_pieces() const {
  if (!pieces.empty() || bytes == 0) return pieces;
  return {{static_cast<std::byte*>(const_cast<void*>(buffer)), 0, bytes}};  // NOLINT: as above
}

Result<MappableBuffers> MappableBuffers::make(const runtime::OnDevice& on, const Used& input,
                                              const Used& output) {
  MappableBuffers made;
  EPCCL_ASSIGN(made.input_, MappableBuffer::make(on, input.buffer, input.bytes, input.all_pieces()));
  EPCCL_ASSIGN(made.output_, MappableBuffer::make(on, output.buffer, output.bytes, output.all_pieces()));
  return made;
}

}  // namespace epccl::api
