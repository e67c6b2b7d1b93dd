// Dispatch and combine of a device's memory by way of pinned host memory: the host's own, with copies before and after.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.hpp"
#include "ep/calls/transfer.hpp"
#include "runtime/streams/staged_calls.hpp"

namespace epccl::ep {

/// Pinned memory that a call needs.
uint64_t staging_bytes(const DispatchCall& call);
uint64_t staging_bytes(const CombineCall& call);

// As dispatch() and combine(). `pinned`: staging_bytes() of memory that the device copies from and to. To be called by the worker
// of `staged`, when the call's turn has begun. Rows of the output that belong to nothing stay as they are.
Status dispatch_staged(Handle& handle, const DispatchCall& call, runtime::StagedCalls& staged,
                       std::byte* pinned);
Status combine_staged(Handle& handle, const CombineCall& call, runtime::StagedCalls& staged,
                      std::byte* pinned);

}  // namespace epccl::ep
