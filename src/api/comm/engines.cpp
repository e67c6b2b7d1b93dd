// Who moves the data of the calls that follow, and whether copy engines can.
#include <algorithm>
#include <memory>

#include "api/groups/group.hpp"
#include "api/handles/handles.hpp"
#include "api/handles/last_error.hpp"
#include "device/gpus.hpp"
#include "runtime/comm/engine_reach.hpp"

namespace epccl::api {
namespace {

Status set_copy_engine(epcclComm_t comm, const char* name) {
  EPCCL_ASSIGN(const CommPtr communicator, find_usable_communicator(comm));
  runtime::EngineUse use = communicator->config().engines.use;
  if (name != nullptr) {
    EPCCL_ASSIGN(use, runtime::parse_engine_use(name));
  }
  communicator->set_engine_use(use);
  return {};
}

Result<device::Device*> gpu_of(int device) {
  if (device == EPCCL_NO_GPU) return Status(Code::invalid_usage, "it was asked without a GPU");
  if (device == EPCCL_CURRENT_GPU) device = device::current_cuda_device().value_or(0);
  return device::cuda_device(device);
}

Status check_copy_engines(epcclComm_t comm, int device, int* usable, char* why, size_t why_size) {
  EPCCL_ASSIGN(CommPtr communicator, find_usable_communicator(comm));
  if (usable == nullptr) return {Code::invalid_argument, "usable is NULL"};
  if (why == nullptr && why_size > 0) return {Code::invalid_argument, "why is NULL"};
  if (device < EPCCL_NO_GPU) return error(Code::invalid_argument, "device is {}", device);
  runtime::Communicator* target = communicator.get();
  // The context is the caller's now, not when the group ends.
  const auto gpu = std::make_shared<const Result<device::Device*>>(gpu_of(device));
  const auto find = [=]() -> Status {
    EPCCL_ASSIGN(const runtime::EngineReach reach, runtime::find_engine_reach(*target, *gpu));
    *usable = reach.is_enough ? 1 : 0;
    if (why_size > 0) why[reach.why_not.copy(why, why_size - 1)] = 0;
    return {};
  };
  return submit({std::move(communicator), nullptr, CollectiveWork{find, [] { return 0.0; }}});
}

}  // namespace
}  // namespace epccl::api

using namespace epccl::api;

epcclResult_t epcclCommSetCopyEngine(epcclComm_t comm, const char* copyEngine) {
  return guarded([&] { return set_copy_engine(comm, copyEngine); });
}

epcclResult_t epcclCommCheckCopyEngines(epcclComm_t comm, int device, int* usable, char* why,
                                        size_t whySize) {
  return guarded([&] { return refuse(check_copy_engines(comm, device, usable, why, whySize)); });
}
