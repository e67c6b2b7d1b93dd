#include "ep/calls/stand_ins.hpp"

#include "device/host/host_copy.hpp"
#include "device/host/host_memory.hpp"

namespace epccl::ep {
namespace {

// Of more a rank not all is left in the caches when peers come to read it, where the last-level cache does not keep it.
constexpr uint64_t kept_in_cache = 512 << 10;

}  // namespace

StandIns::StandIns(const Handle& handle)
    : group_(handle.group()), alone_(handle.communicator().node_is_one_process()) {}

bool StandIns::reaches(const void* data, uint64_t bytes) const {
  return alone_ || data == nullptr || bytes == 0 || device::find_window(data, bytes);
}

Result<const void*> StandIns::input(const void* data, uint64_t rows, uint64_t row_bytes,
                                    std::span<const RowRange> used, uint64_t call_bytes) {
  if (reaches(data, rows * row_bytes)) return data;
  EPCCL_ASSIGN(void* const window, lend(rows * row_bytes));
  uint64_t bytes = 0;
  for (const RowRange& range : used) bytes += range.count * row_bytes;
  const bool past_cache = bytes > kept_in_cache && !group_.communicator().copies().keeps(call_bytes + bytes);
  for (const RowRange& range : used) {
    auto* const to = static_cast<std::byte*>(window) + range.first * row_bytes;
    const auto* const from = static_cast<const std::byte*>(data) + range.first * row_bytes;
    if (past_cache)
      device::copy_bytes(to, from, range.count * row_bytes, true);
    else
      group_.shared_copy().copy(to, from, range.count * row_bytes);
  }
  return static_cast<const void*>(window);
}

Result<void*> StandIns::lend(uint64_t bytes) {
  EPCCL_ASSIGN(loans_.emplace_back(), group_.windows().lend(bytes));
  return loans_.back().as<void>();
}

}  // namespace epccl::ep
