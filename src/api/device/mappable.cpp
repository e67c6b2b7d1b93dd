#include "api/device/mappable.hpp"

#include <utility>

#include "base/log.hpp"

namespace epccl::api {

Result<MappableBuffer> MappableBuffer::make(const runtime::Communicator::OnDevice& on, const void* buffer,
                                            uint64_t bytes, Pieces pieces) {
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

Result<MappableBuffers> MappableBuffers::make(const runtime::Communicator::OnDevice& on, Used input,
                                              Used output) {
  MappableBuffers made;
  for (Used* used : {&input, &output}) {
    auto* data = static_cast<std::byte*>(const_cast<void*>(used->buffer));  // NOLINT: as above
    if (used->pieces.empty() && used->bytes > 0) used->pieces.push_back({data, 0, used->bytes});
  }
  EPCCL_ASSIGN(made.input_, MappableBuffer::make(on, input.buffer, input.bytes, std::move(input.pieces)));
  EPCCL_ASSIGN(made.output_, MappableBuffer::make(on, output.buffer, output.bytes, std::move(output.pieces)));
  return made;
}

}  // namespace epccl::api
