#include "api/handles/handles.hpp"

#include <atomic>
#include <map>
#include <mutex>

#include "base/caught.hpp"
#include "base/per_process.hpp"
#include "base/threads_own.hpp"
#include "device/gpus.hpp"

namespace epccl::api {
namespace {

// Of how many handles it is remembered what became of them.
constexpr size_t ends_kept = 1024;

struct Handles {
  std::mutex mutex;
  std::map<uintptr_t, HandlePtr> by_value;
  std::map<uintptr_t, End> ended;
  std::atomic<uint64_t> removed = 0;
};
// Far from the numbers that programs pass by mistake, and never used twice, nor in a child of this process: an old handle
// is not a new communicator.
std::atomic<uintptr_t> next_handle = 0xec1'0000'0000;

// Never destroyed: communicators that the program forgot must not be torn down by static destructors, in unknown order. Nor by
// a forked child, whose end would be told to the other ranks as this rank's.
Handles& handles() {
  static PerProcess<Handles> instance;
  return *instance;
}

/// As long as it stays the same, so does what a look-up finds.
struct Moment {
  const Handles* of = nullptr;  // a forked child has others
  uint64_t removed = 0, changes = 0;
  friend bool operator==(const Moment&, const Moment&) = default;

  static Moment now() {
    const Handles& all = handles();
    return {&all, all.removed.load(std::memory_order_acquire), CommHandle::changes()};
  }
};

struct LastFound {
  epcclComm_t comm = nullptr;
  Moment moment;
  std::weak_ptr<runtime::Communicator> communicator;
};

const char* to_text(End end) {
  switch (end) {
    case End::destroyed:
      return "was destroyed";
    case End::aborted:
      return "was aborted";
    case End::failed:
      return "could not be made";
  }
  return "is gone";
}

// With the mutex held.
Status unknown(epcclComm_t comm) {
  if (comm == nullptr) return {Code::invalid_argument, "the communicator is NULL"};
  const auto ended = handles().ended.find(reinterpret_cast<uintptr_t>(comm));
  if (ended != handles().ended.end())
    return error(Code::invalid_argument, "communicator {} {}", static_cast<void*>(comm),
                 to_text(ended->second));
  return error(Code::invalid_argument, "{} is not a communicator of this process, or was destroyed",
               static_cast<void*>(comm));
}

}  // namespace

epcclComm_t add_handle(HandlePtr handle) {
  constexpr uintptr_t step = 16;
  const std::lock_guard lock(handles().mutex);
  const uintptr_t value = next_handle.fetch_add(step);
  handles().by_value.emplace(value, std::move(handle));
  return reinterpret_cast<epcclComm_t>(value);  // NOLINT(performance-no-int-to-ptr): an opaque number
}

Result<HandlePtr> find_handle(epcclComm_t comm) {
  const std::lock_guard lock(handles().mutex);
  const auto it = handles().by_value.find(reinterpret_cast<uintptr_t>(comm));
  if (it == handles().by_value.end()) return unknown(comm);
  return it->second;
}

Result<HandlePtr> remove_handle(epcclComm_t comm, End end) {
  const std::lock_guard lock(handles().mutex);
  const auto it = handles().by_value.find(reinterpret_cast<uintptr_t>(comm));
  if (it == handles().by_value.end()) return unknown(comm);
  HandlePtr handle = std::move(it->second);
  // Without memory for it nobody knows later what became of this one.
  go_through([&] { handles().ended.emplace(it->first, end); });
  if (handles().ended.size() > ends_kept) handles().ended.erase(handles().ended.begin());
  handles().by_value.erase(it);
  handles().removed.fetch_add(1, std::memory_order_release);
  return handle;
}

size_t count_handles() {
  const std::lock_guard lock(handles().mutex);
  return handles().by_value.size();
}

Result<CommPtr> find_communicator(epcclComm_t comm) {
  EPCCL_ASSIGN(const HandlePtr handle, find_handle(comm));
  return handle->communicator();
}

// Most calls of a thread are on the communicator of its last one, which the two locks of a look-up would make a good deal slower.
Result<CommPtr> find_usable_communicator(epcclComm_t comm) {
  LastFound& last = threads_own<LastFound>();
  const Moment now = Moment::now();
  CommPtr communicator = last.comm == comm && last.moment == now ? last.communicator.lock() : nullptr;
  if (communicator == nullptr) {
    EPCCL_ASSIGN(communicator, find_communicator(comm));
    last = {comm, now, communicator};
  }
  if (communicator->finalized())
    return error(Code::invalid_usage, "rank {}: the communicator has been finalized", communicator->rank());
  return communicator;
}

Result<device::HostStream*> find_stream(epcclStream_t handle) {
  if (handle == nullptr) return static_cast<device::HostStream*>(nullptr);
  device::HostStream* stream = device::find_stream(handle);
  if (stream == nullptr)
    return error(
        Code::invalid_argument, "{} is not a stream, or was destroyed{}", handle,
        device::cuda_possible() ? "; host memory takes streams of epcclStreamCreate, not a GPU's" : "");
  return stream;
}

Result<std::shared_ptr<device::HostEvent>> find_event(epcclEvent_t handle) {
  if (handle == nullptr) return Status(Code::invalid_argument, "event is NULL");
  std::shared_ptr<device::HostEvent> event = device::find_event(handle);
  if (event == nullptr) return error(Code::invalid_argument, "{} is not an event, or was destroyed", handle);
  return event;
}

}  // namespace epccl::api
