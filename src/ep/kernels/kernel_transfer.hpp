// Dispatch and combine of a device's memory by its kernels: inside a node rows go straight from one rank's memory to another's. Where
// there are several nodes the plan is the host's (algorithms/ep), which the device's queues and the network carry out; so is the order of
// sums, and, but in static mode, the layout.
#pragma once

#include <memory>

#include "base/status.hpp"
#include "ep/calls/transfer.hpp"
#include "ep/handle/device_layout.hpp"
#include "ep/handle/kernel_tables.hpp"
#include "runtime/engines/kernel_calls.hpp"
#include "runtime/streams/device_rooms.hpp"

namespace epccl::ep {

class CapturedRouting;

/// Memory that a call may need, borrowed before its turn (DeviceRooms::borrow()).
struct KernelRooms {
  using Room = runtime::DeviceRooms::Borrowed;
  KernelTables::Limits limits;
  bool has_tables = false;         // kernels have made the routing's tables with its layout
  Room tables_there, tables_here;  // KernelTables::bytes(); null: has_tables
  // That peers can map:
  Room rows;     // in place of rows that they cannot; null: they can
  Room scales;   // of a dispatch of float8
  Room weights;  // of a dispatch with weights; of a combine in place of those that peers cannot map
  // Of several nodes:
  TablesRoom plan_tables;  // null: has_tables
  Room quantised;          // of a dispatch that quantises: this rank's tokens, then their scales
  Room home;               // of a combine that brings weights nobody asked for
};
/// Whether peers can map it.
bool is_reachable(const device::Device& device, const void* address, uint64_t bytes);
struct RoutingToCome {
  const Handle& handle;
  uint64_t k = 0;           // of the handle's routing, when the call runs
  bool has_tables = false;  // it is then one that kernels made
};
Result<KernelRooms> borrow_rooms(const DispatchCall& call, const RoutingToCome& routing,
                                 const device::Device& device, runtime::DeviceRooms& from);
Result<KernelRooms> borrow_rooms(const CombineCall& call, const RoutingToCome& routing,
                                 const device::Device& device, runtime::DeviceRooms& from);

/// As Handle::update(), where KernelCalls::choose() says so, in static mode: kernels make the layout.
Status update_by_kernels(Handle& handle, const RoutingOnDevice& routing,
                         const std::shared_ptr<DeviceLayout>& layout, runtime::KernelCalls& kernels);

// As dispatch() and combine(), where KernelCalls::choose() says so. NaNs among weights are not looked for.
Status dispatch_by_kernels(Handle& handle, const DispatchCall& call, runtime::KernelCalls& kernels,
                           const KernelRooms& rooms);
Status combine_by_kernels(Handle& handle, const CombineCall& call, runtime::KernelCalls& kernels,
                          const KernelRooms& rooms);

// The same calls as parts of a graph, which uses the routing that the device has then: collective, from work of the communicator,
// after Communicator::prepare_captures(). Nothing runs. `agreed`: what all ranks found alike is wrong; then the graph has nothing of
// the call. In static mode.
struct Captured {
  device::Queue* stream = nullptr;
  std::shared_ptr<CapturedRouting> routing;
};
Status capture_update(Handle& handle, const RoutingOnDevice& given, const Captured& into,
                      runtime::KernelCalls& kernels, Status& agreed);
Status capture_dispatch(Handle& handle, const DispatchCall& call, const Captured& into,
                        runtime::KernelCalls& kernels);
Status capture_combine(Handle& handle, const CombineCall& call, const Captured& into,
                       runtime::KernelCalls& kernels);

}  // namespace epccl::ep
