#include "api/handles.hpp"

#include <mutex>
#include <unordered_map>

namespace epccl::api {
namespace {

struct Handles {
  std::mutex mutex;
  std::unordered_map<void*, CommPtr> communicators;
};

// Never destroyed: communicators that the program forgot must not be torn down by static destructors, in unknown order.
Handles& handles() {
  static auto* instance = new Handles;  // NOLINT(cppcoreguidelines-owning-memory)
  return *instance;
}

Status unknown(epcclComm_t handle) {
  if (handle == nullptr) return {Code::invalid_argument, "the communicator is NULL"};
  return error(Code::invalid_argument, "{} is not a communicator, or was destroyed",
               static_cast<void*>(handle));
}

}  // namespace

epcclComm_t add_communicator(CommPtr communicator) {
  auto* handle = reinterpret_cast<epcclComm_t>(communicator.get());
  const std::lock_guard lock(handles().mutex);
  handles().communicators.emplace(handle, std::move(communicator));
  return handle;
}

Result<CommPtr> find_communicator(epcclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  const auto it = handles().communicators.find(handle);
  if (it == handles().communicators.end()) return unknown(handle);
  return it->second;
}

Result<CommPtr> find_usable_communicator(epcclComm_t handle) {
  EPCCL_ASSIGN(CommPtr communicator, find_communicator(handle));
  if (communicator->finalized())
    return error(Code::invalid_usage, "rank {}: the communicator has been finalized", communicator->rank());
  return communicator;
}

Result<CommPtr> remove_communicator(epcclComm_t handle) {
  const std::lock_guard lock(handles().mutex);
  const auto it = handles().communicators.find(handle);
  if (it == handles().communicators.end()) return unknown(handle);
  CommPtr communicator = std::move(it->second);
  handles().communicators.erase(it);
  return communicator;
}

Result<device::HostStream*> find_stream(epcclStream_t handle) {
  if (handle == nullptr) return static_cast<device::HostStream*>(nullptr);
  device::HostStream* stream = device::find_stream(handle);
  if (stream == nullptr) return error(Code::invalid_argument, "{} is not a stream, or was destroyed", handle);
  return stream;
}

Result<std::shared_ptr<device::HostEvent>> find_event(epcclEvent_t handle) {
  if (handle == nullptr) return Status(Code::invalid_argument, "event is NULL");
  std::shared_ptr<device::HostEvent> event = device::find_event(handle);
  if (event == nullptr) return error(Code::invalid_argument, "{} is not an event, or was destroyed", handle);
  return event;
}

}  // namespace epccl::api
