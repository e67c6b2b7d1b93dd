// User-defined operations, which have a number in each library.
#pragma once

#include "abi.hpp"
#include "epccl/epccl.h"

namespace epccl::nccl {

/// The real library's number of `op`, one of `comm`'s; an unknown one stays as it is, for the library to refuse.
ncclRedOp_t real_op(ncclRedOp_t op, ncclComm_t comm);
/// EPCCL's, in the same way.
epcclRedOp_t native_op(ncclRedOp_t op, ncclComm_t comm);

}  // namespace epccl::nccl
