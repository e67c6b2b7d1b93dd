#include <algorithm>

#include "device/host/fp8.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/kernels/kernel_transfer.hpp"

namespace epccl::ep {
namespace {

using device::MemoryKind;
using runtime::DeviceRooms;

bool is_across(const RoutingToCome& routing) {
  return routing.handle.group().cluster().nodes() > 1;
}

Status borrow_tables(KernelRooms& rooms, const RoutingToCome& routing, DeviceRooms& from) {
  rooms.has_tables = routing.has_tables;
  rooms.limits.given = is_across(routing) ? rooms.limits.rows * rooms.limits.k : 0;
  if (rooms.has_tables) return {};
  const uint64_t bytes = KernelTables::bytes(rooms.limits);
  EPCCL_ASSIGN(rooms.tables_there, from.borrow(bytes, MemoryKind::plain));
  EPCCL_ASSIGN(rooms.tables_here, from.borrow(bytes));
  return {};
}

/// Of a plan of several nodes.
Status borrow_plan_tables(KernelRooms& rooms, const RoutingToCome& routing, bool combine, DeviceRooms& from) {
  if (routing.has_tables) return {};
  const Group& group = routing.handle.group();
  const TableSizes most = most_table_bytes(group.cluster(), group.rank(), routing.handle.rules(),
                                           group.options().max_tokens, routing.k, group.options().strategy);
  const uint64_t bytes = combine ? most.combine : most.dispatch();
  EPCCL_ASSIGN(rooms.plan_tables.there, from.borrow(bytes, MemoryKind::plain));
  EPCCL_ASSIGN(rooms.plan_tables.here, from.borrow(bytes));
  return {};
}

}  // namespace

bool is_reachable(const device::Device& device, const void* address, uint64_t bytes) {
  return bytes == 0 || device.can_export(address, bytes).ok();
}

Result<KernelRooms> borrow_rooms(const DispatchCall& call, const RoutingToCome& routing,
                                 const device::Device& device, DeviceRooms& from) {
  const uint64_t k = routing.k;
  KernelRooms rooms;
  rooms.limits = {call.token_rows, k, call.received_rows};
  EPCCL_TRY(borrow_tables(rooms, routing, from));
  if (is_across(routing)) EPCCL_TRY(borrow_plan_tables(rooms, routing, false, from));
  if (is_across(routing) && quantises(call)) {
    const uint64_t row = call.hidden + device::e4m3_scales(call.hidden) * sizeof(float);
    EPCCL_ASSIGN(rooms.quantised, from.borrow(call.token_rows * row, MemoryKind::plain));
  }
  const uint64_t bytes = call.received_rows * call.hidden * bytes_of(call.received_type);
  if (!is_reachable(device, call.received, bytes)) {
    EPCCL_ASSIGN(rooms.rows, from.borrow(bytes, MemoryKind::shareable));
  }
  if (call.received_type == TokenType::float8_e4m3) {
    const uint64_t scales = call.received_rows * device::e4m3_scales(call.hidden) * sizeof(float);
    EPCCL_ASSIGN(rooms.scales, from.borrow(scales, MemoryKind::shareable));
  }
  if (call.weights.given()) {
    EPCCL_ASSIGN(rooms.weights, from.borrow(call.received_rows * k * sizeof(float), MemoryKind::shareable));
  }
  return rooms;
}

Result<KernelRooms> borrow_rooms(const CombineCall& call, const RoutingToCome& routing,
                                 const device::Device& device, DeviceRooms& from) {
  KernelRooms rooms;
  rooms.limits = {call.combined_rows, routing.k, call.token_rows};
  EPCCL_TRY(borrow_tables(rooms, routing, from));
  if (is_across(routing)) EPCCL_TRY(borrow_plan_tables(rooms, routing, true, from));
  const uint64_t bytes = call.token_rows * call.hidden * bytes_of(call.type);
  if (!is_reachable(device, call.tokens, bytes)) {
    EPCCL_ASSIGN(rooms.rows, from.borrow(bytes, MemoryKind::shareable));
  }
  if (is_across(routing)) {
    // As many as the top-k for each row, as they travel.
    const uint64_t row = routing.k * sizeof(float);
    if (!returns_weights(call)) return rooms;
    EPCCL_ASSIGN(rooms.weights, from.borrow(call.token_rows * row, MemoryKind::shareable));
    if (!call.combined_weights.given()) {
      EPCCL_ASSIGN(rooms.home, from.borrow(call.combined_rows * row, MemoryKind::plain));
    }
    return rooms;
  }
  const uint64_t weights = call.weights.rows * call.weights.columns * sizeof(float);
  if (call.weights.given() && !is_reachable(device, call.weights.data, weights)) {
    EPCCL_ASSIGN(rooms.weights, from.borrow(weights, MemoryKind::shareable));
  }
  return rooms;
}

}  // namespace epccl::ep
