// Reduction operations: NCCL's, and those that users make.
#pragma once

#include "api/handles/handles.hpp"
#include "base/status.hpp"
#include "device/host/reduction.hpp"
#include "epccl/epccl.h"

namespace epccl::api {

/// An operation as a collective uses it.
struct Operation {
  device::Reduction reduction;
  const void* device_scalar = nullptr;  // to be read when the collective runs
  const char* name = "";
};

/// `comm` and `datatype` are those of the collective. Error: unknown, or made for others.
Result<Operation> find_operation(epcclRedOp_t op, epcclDataType_t datatype, epcclComm_t comm, int ranks);

Result<epcclRedOp_t> add_premul_sum(const void* scalar, epcclDataType_t datatype,
                                    epcclScalarResidence_t residence, epcclComm_t comm);
Status remove_operation(epcclRedOp_t op, epcclComm_t comm);

}  // namespace epccl::api
