// Entry points whose function in epccl.h is still to come refuse, by name.
#pragma once

#include "group.hpp"

namespace epccl::nccl {

inline ncclResult_t not_yet(const char* name) {
  return refuse_call(error(Code::invalid_usage, "{} on host memory is not native yet", name));
}

}  // namespace epccl::nccl
