#include <algorithm>

#include "device/host/fp8.hpp"
#include "ep/kernel_transfer.hpp"

namespace epccl::ep {
namespace {

using device::MemoryKind;
using runtime::StagedCalls;

Status borrow_tables(KernelRooms& rooms, StagedCalls& from) {
  if (rooms.has_tables) return {};
  const uint64_t bytes = KernelTables::bytes(rooms.limits);
  EPCCL_ASSIGN(rooms.tables_there, from.borrow(bytes, MemoryKind::plain));
  EPCCL_ASSIGN(rooms.tables_here, from.borrow(bytes));
  return {};
}

}  // namespace

bool is_reachable(const device::Device& device, const void* address, uint64_t bytes) {
  if (bytes == 0) return true;
  const auto memory = device.info(address);
  return memory && memory->shareable;
}

Result<KernelRooms> borrow_rooms(const DispatchCall& call, uint64_t k, bool has_tables,
                                 const device::Device& device, StagedCalls& from) {
  KernelRooms rooms;
  rooms.has_tables = has_tables;
  rooms.limits = {call.token_rows, k, call.received_rows};
  EPCCL_TRY(borrow_tables(rooms, from));
  const uint64_t bytes = call.received_rows * call.hidden * bytes_of(call.received_type);
  if (!is_reachable(device, call.received, bytes)) {
    EPCCL_ASSIGN(rooms.rows, from.borrow(bytes, MemoryKind::shareable));
  }
  if (call.received_type == Element::float8_e4m3) {
    const uint64_t scales = call.received_rows * device::e4m3_scales(call.hidden) * sizeof(float);
    EPCCL_ASSIGN(rooms.scales, from.borrow(scales, MemoryKind::shareable));
  }
  if (call.weights.given()) {
    EPCCL_ASSIGN(rooms.weights, from.borrow(call.received_rows * k * sizeof(float), MemoryKind::shareable));
  }
  return rooms;
}

Result<KernelRooms> borrow_rooms(const CombineCall& call, uint64_t k, bool has_tables,
                                 const device::Device& device, StagedCalls& from) {
  KernelRooms rooms;
  rooms.has_tables = has_tables;
  rooms.limits = {call.combined_rows, k, call.token_rows};
  EPCCL_TRY(borrow_tables(rooms, from));
  const uint64_t bytes = call.token_rows * call.hidden * bytes_of(call.type);
  if (!is_reachable(device, call.tokens, bytes)) {
    EPCCL_ASSIGN(rooms.rows, from.borrow(bytes, MemoryKind::shareable));
  }
  const uint64_t weights = call.weights.rows * call.weights.columns * sizeof(float);
  if (call.weights.given() && !is_reachable(device, call.weights.data, weights)) {
    EPCCL_ASSIGN(rooms.weights, from.borrow(weights, MemoryKind::shareable));
  }
  return rooms;
}

}  // namespace epccl::ep
