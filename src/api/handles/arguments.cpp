#include "api/handles/arguments.hpp"

#include <array>

namespace epccl::api {
namespace {

struct Type {
  const char* name;
  uint64_t bytes;
};

constexpr std::array<Type, epcclNumTypes> types{{{"int8", 1},
                                                 {"uint8", 1},
                                                 {"int32", 4},
                                                 {"uint32", 4},
                                                 {"int64", 8},
                                                 {"uint64", 8},
                                                 {"float16", 2},
                                                 {"float32", 4},
                                                 {"float64", 8},
                                                 {"bfloat16", 2},
                                                 {"float8e4m3", 1},
                                                 {"float8e5m2", 1}}};

bool known(epcclDataType_t datatype) {
  const auto value = static_cast<long>(datatype);
  return value >= 0 && value < static_cast<long>(types.size());
}

}  // namespace

Result<uint64_t> datatype_bytes(epcclDataType_t datatype) {
  if (!known(datatype))
    return error(Code::invalid_argument, "datatype {} is unknown (0..{})", static_cast<int>(datatype),
                 types.size() - 1);
  return types[static_cast<size_t>(datatype)].bytes;
}

const char* datatype_name(epcclDataType_t datatype) {
  return known(datatype) ? types[static_cast<size_t>(datatype)].name : "?";
}

Result<uint64_t> checked_bytes(const char* what, size_t count, uint64_t element_bytes, uint64_t blocks) {
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(count), element_bytes, &bytes) ||
      __builtin_mul_overflow(bytes, blocks, &bytes) || bytes > most_bytes)
    return error(Code::invalid_argument, "{} {} x {} bytes{} overflows the address space ({} bytes)", what,
                 count, element_bytes, blocks == 1 ? "" : fmt::format(" x {} ranks", blocks), most_bytes);
  return bytes;
}

Status check_buffer(const char* what, const void* buffer, uint64_t bytes) {
  if (buffer == nullptr && bytes > 0)
    return error(Code::invalid_argument, "{} is NULL, with {} bytes to move", what, bytes);
  if (reinterpret_cast<uintptr_t>(buffer) + bytes < bytes)
    return error(Code::invalid_argument, "{} {} + {} bytes passes the end of the address space", what, buffer,
                 bytes);
  return {};
}

bool overlap(const void* sendbuff, uint64_t send_bytes, const void* recvbuff, uint64_t recv_bytes) {
  const auto send = reinterpret_cast<uintptr_t>(sendbuff), recv = reinterpret_cast<uintptr_t>(recvbuff);
  return send_bytes > 0 && recv_bytes > 0 && send + send_bytes > recv && recv + recv_bytes > send;
}

Status check_rank(const char* what, int rank, int ranks) {
  if (rank >= 0 && rank < ranks) return {};
  return error(Code::invalid_argument, "{} {} is not in 0..{}", what, rank, ranks - 1);
}

}  // namespace epccl::api
