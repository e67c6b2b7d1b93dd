#include "api/ep/ep_handles.hpp"

#include <atomic>
#include <unordered_map>
#include <utility>

#include "base/per_process.hpp"

namespace epccl::api {
namespace {

template <typename Object, uintptr_t first>
struct EpTable {
  std::mutex mutex;
  std::unordered_map<uintptr_t, std::shared_ptr<Object>> objects;
  static inline std::atomic<uintptr_t> next = first;  // never used twice, as for communicators (handles.cpp)

  void* add(std::shared_ptr<Object> object) {
    constexpr uintptr_t step = 16;
    const std::lock_guard lock(mutex);
    const uintptr_t key = next.fetch_add(step);
    objects.emplace(key, std::move(object));
    return reinterpret_cast<void*>(key);  // NOLINT(performance-no-int-to-ptr): an opaque number
  }
  Result<std::shared_ptr<Object>> find(void* key, const char* what) {
    const std::lock_guard lock(mutex);
    const auto it = objects.find(reinterpret_cast<uintptr_t>(key));
    if (it == objects.end()) return unknown(key, what);
    return it->second;
  }
  Result<std::shared_ptr<Object>> remove(void* key, const char* what) {
    const std::lock_guard lock(mutex);
    auto node = objects.extract(reinterpret_cast<uintptr_t>(key));
    if (node.empty()) return unknown(key, what);
    return std::move(node.mapped());
  }

 private:
  static Status unknown(void* key, const char* what) {
    return error(Code::invalid_argument, "{} is not {} of this process, or was destroyed", key, what);
  }
};

// Neither destroyed nor a forked child's, as communicators (handles.cpp).
using EpGroups = EpTable<EpGroup, 0xec2'0000'0000U>;
EpGroups& ep_groups() {
  static PerProcess<EpGroups> instance;
  return *instance;
}
using EpHandles = EpTable<EpHandle, 0xec3'0000'0000U>;
EpHandles& ep_handles() {
  static PerProcess<EpHandles> instance;
  return *instance;
}

constexpr const char* a_group = "an EP group";
constexpr const char* a_handle = "an EP handle";

}  // namespace

EpHandle::~EpHandle() {
  for (auto& [end, stream] : stages_) device::HostStream::end_elsewhere(std::move(stream));
}

std::shared_ptr<ep::CapturedRouting> EpHandle::captured() const {
  const std::lock_guard lock(mutex_);
  return captured_;
}

void EpHandle::set_captured(std::shared_ptr<ep::CapturedRouting> routing) {
  const std::lock_guard lock(mutex_);
  captured_ = std::move(routing);
}

std::shared_ptr<ep::ReplayedRouting> EpHandle::replayed() const {
  const std::lock_guard lock(mutex_);
  return replayed_;
}

void EpHandle::set_replayed(std::shared_ptr<ep::ReplayedRouting> routing) {
  const std::lock_guard lock(mutex_);
  replayed_ = std::move(routing);
}

void EpHandle::set_place(Kind kind, device::Device* where) {
  const std::lock_guard lock(mutex_);
  places_[static_cast<size_t>(kind)] = where;
}

std::optional<device::Device*> EpHandle::place(Kind kind) const {
  const std::lock_guard lock(mutex_);
  const auto i = static_cast<size_t>(kind);
  return places_[i] ? places_[i] : places_[1 - i];
}

device::HostStream* EpHandle::background_stream() {
  const std::lock_guard lock(mutex_);
  if (background_ == nullptr) background_ = std::make_unique<device::HostStream>();
  return background_.get();
}

device::HostStream* EpHandle::stage_stream(ep::StartedCalls::State end) {
  const std::lock_guard lock(mutex_);
  auto& stream = stages_[end];
  if (stream == nullptr) stream = std::make_unique<device::HostStream>();
  return stream.get();
}

epcclEpGroup_t add_ep_group(EpGroupPtr group) {
  return static_cast<epcclEpGroup_t>(ep_groups().add(std::move(group)));
}

Result<EpGroupPtr> find_ep_group(epcclEpGroup_t group) {
  EPCCL_ASSIGN(EpGroupPtr found, ep_groups().find(group, a_group));
  EPCCL_TRY(find_usable_communicator(found->comm).take_status());
  return found;
}

Status remove_ep_group(epcclEpGroup_t group) {
  EPCCL_ASSIGN(const EpGroupPtr found, ep_groups().find(group, a_group));
  if (const int handles = found->handles.load(); handles > 0)
    return error(Code::invalid_usage, "the EP group still has {} handles: destroy them first", handles);
  return ep_groups().remove(group, a_group).take_status();
}

epcclEpHandle_t add_ep_handle(EpHandlePtr handle) {
  ++handle->group->handles;
  return static_cast<epcclEpHandle_t>(ep_handles().add(std::move(handle)));
}

Result<EpHandlePtr> find_ep_handle(epcclEpHandle_t handle) {
  return ep_handles().find(handle, a_handle);
}

Result<EpHandlePtr> find_usable_ep_handle(epcclEpHandle_t handle) {
  EPCCL_ASSIGN(EpHandlePtr found, find_ep_handle(handle));
  EPCCL_TRY(find_usable_communicator(found->group->comm).take_status());
  return found;
}

Result<EpHandlePtr> remove_ep_handle(epcclEpHandle_t handle) {
  EPCCL_ASSIGN(EpHandlePtr removed, ep_handles().remove(handle, a_handle));
  --removed->group->handles;
  return removed;
}

}  // namespace epccl::api
