#include "communicator.hpp"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "errors.hpp"

namespace epccl_torch {

void check(epcclResult_t result, const std::string& what) {
  if (result == epcclSuccess) return;
  std::rethrow_exception(
      failure_of(epcclGetLastErrorReason(nullptr), what, ": ", epcclGetLastError(nullptr)));
}

Communicator::Communicator(const epcclUniqueId& id, int ranks, int rank, double timeout,
                           const std::string& name, const std::function<void()>& go_on) {
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  config.timeout = timeout;
  config.commName = name.c_str();
  config.blocking = 0;    // as the others may never come: see go_on
  config.firstCalls = 1;  // all the same: PyTorch loads its kernels meanwhile
  epcclComm_t made = nullptr;
  const epcclResult_t begun = epcclCommInitRankConfig(&made, ranks, id, rank, &config);
  if (begun != epcclInProgress) check(begun, "joining " + name);
  handle_ = made;
  try {
    join(name, go_on);
  } catch (...) {
    abort();
    throw;
  }
}

void Communicator::join(const std::string& name, const std::function<void()>& go_on) {
  constexpr std::chrono::microseconds first_look{50}, last_look{10'000};
  for (auto pause = first_look;; pause = std::min(2 * pause, last_look)) {
    epcclResult_t state = epcclSuccess;
    check(epcclCommGetAsyncError(handle_, &state), "joining " + name);
    if (state != epcclInProgress) break;
    go_on();
    std::this_thread::sleep_for(pause);
  }
  // There is one, whatever has become of it since: that its calls tell.
  int joined = 0;
  check(epcclCommCount(handle_, &joined), "joining " + name);
}

Communicator::~Communicator() {
  leave();
}

epcclComm_t Communicator::handle() const {
  epcclComm_t handle = handle_;
  TORCH_CHECK_WITH(DistBackendError, handle != nullptr, "epccl: this process group was aborted or destroyed");
  return handle;
}

Communicator::Failure Communicator::failure() const {
  epcclComm_t handle = handle_;
  if (handle == nullptr) return {aborted_ ? "this process group was aborted" : ""};
  epcclResult_t result = epcclSuccess;
  if (epcclCommGetAsyncError(handle, &result) != epcclSuccess || result == epcclSuccess) return {};
  return {epcclGetLastError(handle), epcclGetLastErrorReason(handle)};
}

void Communicator::abort() noexcept {
  aborted_ = true;
  if (epcclComm_t handle = handle_.exchange(nullptr)) (void)epcclCommAbort(handle);
}

void Communicator::leave() noexcept {
  if (epcclComm_t handle = handle_.exchange(nullptr)) (void)epcclCommDestroy(handle);
}

}  // namespace epccl_torch
