#include "communicator.hpp"

#include <c10/util/Exception.h>

namespace epccl_torch {

void check(epcclResult_t result, const std::string& what) {
  TORCH_CHECK_WITH(DistBackendError, result == epcclSuccess, "epccl: ", what, ": ",
                   epcclGetLastError(nullptr));
}

Communicator::Communicator(const epcclUniqueId& id, int ranks, int rank, double timeout,
                           const std::string& name) {
  epcclConfig_t config = EPCCL_CONFIG_INITIALIZER;
  config.timeout = timeout;
  config.commName = name.c_str();
  epcclComm_t made = nullptr;
  check(epcclCommInitRankConfig(&made, ranks, id, rank, &config), "joining " + name);
  handle_ = made;
}

Communicator::~Communicator() {
  leave();
}

epcclComm_t Communicator::handle() const {
  epcclComm_t handle = handle_;
  TORCH_CHECK_WITH(DistBackendError, handle != nullptr, "epccl: this process group was aborted or destroyed");
  return handle;
}

std::string Communicator::failure() const {
  epcclComm_t handle = handle_;
  if (handle == nullptr) return aborted_ ? "this process group was aborted" : "";
  epcclResult_t result = epcclSuccess;
  if (epcclCommGetAsyncError(handle, &result) != epcclSuccess || result == epcclSuccess) return "";
  return epcclGetLastError(handle);
}

void Communicator::abort() noexcept {
  aborted_ = true;
  if (epcclComm_t handle = handle_.exchange(nullptr)) (void)epcclCommAbort(handle);
}

void Communicator::leave() noexcept {
  if (epcclComm_t handle = handle_.exchange(nullptr)) (void)epcclCommDestroy(handle);
}

}  // namespace epccl_torch
