// What the kernels of a dispatch or combine are told of the handle's routing.
#pragma once

#include "device/kernels/parameters.hpp"
#include "ep/calls/row_call.hpp"
#include "ep/handle/handle.hpp"
#include "ep/handle/kernel_tables.hpp"

namespace epccl::ep {

struct RoutingInUse {
  const Handle& handle;
  CallShape shape;
  KernelTables* tables = nullptr;
  const uint32_t* tokens_there =
      nullptr;  // how many tokens there are when kernels run; null: as many as `shape` says

  device::kernels::RowCount tokens() const { return {tokens_there, static_cast<uint32_t>(shape.tokens)}; }
};

}  // namespace epccl::ep
