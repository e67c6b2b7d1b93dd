// Nonblocking communicators, as programs poll them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "epccl/epccl.h"

namespace epccl::tests {

/// The state of `comm` once it is not in progress any more.
inline epcclResult_t settled(epcclComm_t comm) {
  epcclResult_t state = epcclInProgress;
  while (state == epcclInProgress) {
    if (epcclCommGetAsyncError(comm, &state) != epcclSuccess) return epcclNumResults;
    if (state == epcclInProgress) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return state;
}

inline epcclConfig_t nonblocking_config() {
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// What ends in tests with this timeout was ended by an abort or revoke: nobody waits that long, the test least of all.
inline const std::vector<std::pair<std::string, std::string>> long_timeout{{"EPCCL_TIMEOUT", "600"}};

}  // namespace epccl::tests
