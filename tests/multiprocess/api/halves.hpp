// A rank's half of a pattern of messages: something that can issue() them on a communicator and check() what came.
#pragma once

#include <gtest/gtest.h>

#include "epccl/epccl.h"

namespace epccl::tests {

/// As one group.
template <typename Half>
void run_as_group(Half& half, epcclComm_t comm) {
  ASSERT_EQ(epcclGroupStart(), epcclSuccess);
  half.issue(comm);
  ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(comm);
  half.check();
}

/// Halves of two communicators as one group; ranks issue them in different orders.
template <typename Half>
void run_as_one_group(int rank, Half& in_a, epcclComm_t a, Half& in_b, epcclComm_t b) {
  ASSERT_EQ(epcclGroupStart(), epcclSuccess);
  if (rank % 2 == 0) in_a.issue(a);
  in_b.issue(b);
  if (rank % 2 != 0) in_a.issue(a);
  ASSERT_EQ(epcclGroupEnd(), epcclSuccess) << epcclGetLastError(a) << epcclGetLastError(b);
  in_a.check();
  in_b.check();
}

}  // namespace epccl::tests
