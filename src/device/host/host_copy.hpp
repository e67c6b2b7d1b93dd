// Copies on the calling core: the host's stand-in for a copy engine.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epccl::device {

/// Copies `bytes` between buffers that do not overlap. `streaming` stores past the cache: faster where the data is larger
/// than what the caches keep, slower where the receiver reads it soon.
void copy_bytes(void* destination, const void* source, size_t bytes, bool streaming);

/// `rows` rows of `bytes`, strides apart.
void copy_rows(std::byte* destination, uint64_t destination_stride, const std::byte* source,
               uint64_t source_stride, size_t bytes, uint32_t rows, bool streaming);

}  // namespace epccl::device
