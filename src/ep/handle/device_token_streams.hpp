// The lists of plans of several nodes that kernels make, in static mode: their memory, which is a handle's, for one routing after the
// other. The host learns how many rows each message has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.hpp"
#include "device/device.hpp"
#include "device/kernels/token_stream_parameters.hpp"
#include "ep/handle/group.hpp"
#include "ep/layout/layout.hpp"
#include "ep/layout/token_stream_places.hpp"
#include "runtime/queues/row_feed.hpp"
#include "runtime/streams/device_rooms.hpp"

namespace epccl::ep {

/// What the streams of a handle have in common, whatever the routing.
struct StreamFrame {
  algorithms::TokenExchange exchange;  // without its tables
  TokenStreamPlaces places;
};

class DeviceTokenStreams {
 public:
  /// Allocates: to be called before the turn of a call (DeviceRooms::borrow()). `rules`: of static mode.
  static Result<std::unique_ptr<DeviceTokenStreams>> make(const Group& group, const SlotRules& rules,
                                                          runtime::DeviceRooms& from);

  /// Queues what brings it to the device, unless it is there.
  Status use(device::Queue& queue, const std::shared_ptr<const StreamFrame>& frame);
  /// What of the sources' tables fill is to find for these streams.
  void relay_by(device::kernels::LayoutParameters& layout) const;
  /// Queues what makes the lists, behind the kernels of `layout` and of the terms of its own tokens' sums.
  Status queue_lists(device::Queue& queue, const device::kernels::LayoutParameters& layout,
                     const device::kernels::TermsParameters& own) const;

  // When that is through:
  /// Of the routing; its tables have counts only.
  algorithms::TokenExchange exchange() const;
  /// The rest of them, there.
  runtime::TablesThere tables() const;
  /// Of a dispatch of it.
  std::vector<runtime::HandOutRows> hand_outs(const runtime::DeviceProgram& program) const;

 private:
  DeviceTokenStreams(const Group& group, const SlotRules& rules);
  /// Numbers of a routing's blocks, whatever the strategy, and however short they are.
  uint64_t most_counts() const;
  /// Where each array is; returns their bytes.
  uint64_t lay_out(std::byte* memory);
  template <typename T>
  void bring(const std::vector<T>& list, const T* there);

  const SlotRules rules_;
  const StreamLimits most_;
  uint64_t sources_ = 0, most_handed_ = 0, most_rows_ = 0, places_bytes_ = 0;
  std::shared_ptr<const StreamFrame> frame_;
  device::kernels::TokenStreamParameters parameters_;
  const uint32_t* relays_ = nullptr;
  device::kernels::Target *relayed_ = nullptr, *handed_ = nullptr;
  runtime::DeviceRooms::Borrowed there_;   // of the device
  runtime::DeviceRooms::Borrowed places_;  // pinned: of frame_, on their way
  runtime::DeviceRooms::Borrowed counts_;  // pinned: of the routing
};

}  // namespace epccl::ep
