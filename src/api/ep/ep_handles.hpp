// Groups and handles behind ep.h's opaque pointers: looked up, never dereferenced.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "api/handles/handles.hpp"
#include "ep/calls/started_calls.hpp"
#include "ep/handle/handle.hpp"
#include "epccl/ep.h"

namespace epccl::ep {
class CapturedRouting;
class ReplayedRouting;
}  // namespace epccl::ep

namespace epccl::api {

struct EpGroup {
  EpGroup(std::shared_ptr<ep::Group> made, CommPtr of, epcclComm_t of_handle)
      : group(std::move(made)), communicator(std::move(of)), comm(of_handle) {}

  std::shared_ptr<ep::Group> group;
  CommPtr communicator;
  epcclComm_t comm = nullptr;
  std::atomic<int> handles = 0;  // that have not been destroyed
};

struct EpHandle {
  EpHandle() = default;
  EpHandle(const EpHandle&) = delete;
  EpHandle& operator=(const EpHandle&) = delete;
  /// Does not wait for calls on a GPU's memory, whatever waits for these.
  ~EpHandle();

  std::shared_ptr<EpGroup> group;
  std::shared_ptr<ep::Handle> handle;
  ep::StartedCalls started;
  std::atomic<uint32_t> topk_width = 0;           // K of the last update, at most
  std::atomic<device::Device*> device = nullptr;  // of the calls on a GPU's memory

  std::shared_ptr<ep::DeviceLayout> layout;      // of updates that kernels make; made by the first
  std::atomic<bool> by_kernels = false;          // the last update that was not captured is one of those
  std::atomic<uint32_t> tokens = 0;              // of the last update
  std::atomic<bool> update_is_captured = false;  // that

  // What captured calls share, from the first of them on; null before. Those of a handle are either kernels or the host's: one of the
  // two is always null. Any thread.
  std::shared_ptr<ep::CapturedRouting> captured() const;
  void set_captured(std::shared_ptr<ep::CapturedRouting> routing);
  std::shared_ptr<ep::ReplayedRouting> replayed() const;
  void set_replayed(std::shared_ptr<ep::ReplayedRouting> routing);

  /// Where calls of a kind are made: on a GPU, or on the host (null).
  enum class Kind : uint8_t { update, transfer };
  void set_place(Kind kind, device::Device* where);
  /// Of the last of that kind, or else of the other. No value: there was none. Any thread.
  std::optional<device::Device*> place(Kind kind) const;

  CommPtr communicator() const { return group->communicator; }
  /// The stream of send_only calls, made when first needed. Any thread.
  device::HostStream* background_stream();
  /// The stream on which a GPU's streams wait until calls are as far as `end`: who waits for less is not behind who waits for more.
  device::HostStream* stage_stream(ep::StartedCalls::State end);

 private:
  mutable std::mutex mutex_;
  std::unique_ptr<device::HostStream> background_;
  std::map<ep::StartedCalls::State, std::unique_ptr<device::HostStream>> stages_;
  std::shared_ptr<ep::CapturedRouting> captured_;
  std::shared_ptr<ep::ReplayedRouting> replayed_;
  std::array<std::optional<device::Device*>, 2> places_;  // by Kind
};

using EpGroupPtr = std::shared_ptr<EpGroup>;
using EpHandlePtr = std::shared_ptr<EpHandle>;

epcclEpGroup_t add_ep_group(EpGroupPtr group);
Result<EpGroupPtr> find_ep_group(epcclEpGroup_t group);
/// Error while handles of the group are left.
Status remove_ep_group(epcclEpGroup_t group);

epcclEpHandle_t add_ep_handle(EpHandlePtr handle);
/// Any handle that is there, whatever became of its communicator.
Result<EpHandlePtr> find_ep_handle(epcclEpHandle_t handle);
/// One whose communicator may still run collectives.
Result<EpHandlePtr> find_usable_ep_handle(epcclEpHandle_t handle);
Result<EpHandlePtr> remove_ep_handle(epcclEpHandle_t handle);

}  // namespace epccl::api
