// What a communicator has measured of its calls.
#pragma once

#include <gtest/gtest.h>

#include "epccl/profile.h"

namespace epccl::tests {

inline epcclCallTimes_t times_of(epcclComm_t comm) {
  epcclCallTimes_t times = EPCCL_CALL_TIMES_INITIALIZER;
  EXPECT_EQ(epcclCommGetCallTimes(comm, &times), epcclSuccess) << epcclGetLastError(comm);
  return times;
}

}  // namespace epccl::tests
