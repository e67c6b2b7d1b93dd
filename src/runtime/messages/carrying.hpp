// Small messages of one group to many ranks of other nodes, carried by the ranks of this node along rails.
//
// A rank frames what it has for rank (m, l) and lays it out for its neighbour at position l, whose lane to that rank takes what
// all the node has for it in one write. A rank knows only its own half of a group and so do its neighbours: nobody ever waits
// for another to take part. What no carrier has taken up within a moment its origin withdraws and sends itself, and a carrier
// leaves when its own call is over. docs/groups.md has the protocol and why it is safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithms/alltoall/choose.hpp"
#include "base/status.hpp"
#include "runtime/messages/carrier_lanes.hpp"
#include "runtime/messages/carrier_trust.hpp"
#include "runtime/messages/carry_policy.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/shm/parcel_board.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class Carrying {
 public:
  /// `network` may be null: then nothing is carried.
  Carrying(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
           transports::MessageTransport* network, const CarryPolicy& policy);
  Carrying(const Carrying&) = delete;
  Carrying& operator=(const Carrying&) = delete;

  /// The longest message that is carried, whatever the policy.
  static constexpr uint64_t largest_message = 16 << 10;
  /// By this one's policy.
  uint64_t largest() const;
  bool possible() const { return lanes_ != nullptr; }

  /// A call begins, which has `sends` that might be carried.
  void begin(const algorithms::GroupSends& sends);
  /// Whether any of them is, by the policy.
  bool worthwhile() const { return inside_ && worthwhile_; }
  /// Has a message carried. False: it is to be sent directly.
  bool offer(int destination, transports::MessageKey key, const void* data, size_t bytes,
             transports::Completion& completion);
  /// All offers of the call are made.
  void lay_out();
  /// Moves on what this rank has laid out, and what it carries. True when anything moved.
  Result<bool> progress();
  /// Something that this rank must not sleep through is due within moments.
  bool stays_awake() const { return stays_awake_; }
  /// Whether lanes have to be driven.
  bool pending() const;

  /// This rank's own part of the call is over. False: not yet, a lane stands in the middle of a frame.
  bool end();
  bool inside() const { return inside_; }

  struct Counters {
    uint64_t carried = 0, carried_bytes = 0;  // own messages that another rank or an own lane carried
    uint64_t withdrawn = 0;                   // own parcels that were withdrawn
    uint64_t returned = 0;                    // own parcels that a carrier gave back
  };
  const Counters& counters() const { return counters_; }
  /// Of what this rank carries itself.
  CarrierLanes::Counters carrier_counters() const {
    return carrier_ ? carrier_->counters() : CarrierLanes::Counters{};
  }

 private:
  static constexpr size_t none = ~size_t{0};
  /// One message of a parcel.
  struct Item {
    transports::MessageKey key = 0;
    const void* data = nullptr;
    size_t bytes = 0, end = 0;  // of its frame in the parcel
    transports::Completion* completion = nullptr;
    size_t next = none;  // of the same parcel, in items_
  };
  struct Parcel {
    int destination = 0, carrier = 0;
    transports::ParcelSlot* slot = nullptr;
    std::byte* payload = nullptr;
    size_t first = none, last = none;  // in items_
  };
  struct KnownParcel {
    uint64_t call = 0;  // that has it; else there is none
    size_t index = 0;   // in parcels_
  };
  bool wants(int carrier);
  Result<bool> progress_parcels(double now);
  Parcel& parcel_for(int destination);
  Result<bool> conclude(Parcel& parcel, double now);
  void was_carried(const Item& item);
  Status send_rest(const Parcel& parcel, size_t from);
  bool carrier_is_gone(int carrier) const;

  const topology::Cluster& cluster_;
  const int rank_, local_, local_size_;
  transports::NodeMemory& node_;
  transports::MessageTransport* network_;
  transports::Lanes* lanes_ = nullptr;
  const CarryPolicy policy_;
  transports::ParcelBoard board_;

  uint64_t calls_ = 0, worthwhile_calls_ = 0;
  bool inside_ = false, worthwhile_ = false, lanes_wanted_ = false, stays_awake_ = false;
  double laid_out_at_ = 0;
  std::vector<Parcel> parcels_;  // while offers are made: all of the call; then those that are not concluded
  std::vector<Item> items_;
  std::vector<KnownParcel> known_;  // by [carrier][node]
  CarrierTrust trust_;
  std::optional<CarrierLanes> carrier_;  // where there are lanes
  Counters counters_;
};

}  // namespace epccl::runtime
