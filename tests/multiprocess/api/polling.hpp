// Nonblocking communicators, as programs poll them.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

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

/// A rank that has its communicator may be ahead of the others, whose making an abort or revoke would still stop.
inline void let_the_others_through() {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

/// Calls that must not wait for other ranks are expected to be back after this: far below any timeout set in the tests.
inline constexpr double at_once = 5;

/// Fails the test when its scope lasted longer than `at_once`.
class Promptly {
 public:
  Promptly() = default;
  Promptly(const Promptly&) = delete;
  Promptly& operator=(const Promptly&) = delete;
  ~Promptly() {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    EXPECT_LT(passed.count(), at_once);
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace epccl::tests
