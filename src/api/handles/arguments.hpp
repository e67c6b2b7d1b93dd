// Checks that the entry points share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "epccl/epccl.h"

namespace epccl::api {

/// Bytes of one element. Error: unknown datatype.
Result<uint64_t> datatype_bytes(epcclDataType_t datatype);
const char* datatype_name(epcclDataType_t datatype);

/// A buffer has no more: the user's part of the address space.
inline constexpr uint64_t most_bytes = uint64_t{1} << 47;

/// count * element bytes * blocks, which must not be more than that; `what` names the argument.
Result<uint64_t> checked_bytes(const char* what, size_t count, uint64_t element_bytes, uint64_t blocks);

/// A buffer that must not be NULL unless it is empty.
Status check_buffer(const char* what, const void* buffer, uint64_t bytes);

/// Whether buffers have bytes in common.
bool overlap(const void* sendbuff, uint64_t send_bytes, const void* recvbuff, uint64_t recv_bytes);

Status check_rank(const char* what, int rank, int ranks);

}  // namespace epccl::api
