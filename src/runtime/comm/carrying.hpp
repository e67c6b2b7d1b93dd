// Small messages of one group to many ranks of other nodes, carried by the ranks of this node along rails.
//
// A rank frames what it has for rank (m, l) and lays it out for its neighbour at position l, whose lane to that rank takes what
// all the node has for it in one write. A rank knows only its own half of a group and so do its neighbours: nobody ever waits
// for another to take part. What no carrier has taken up within a moment its origin withdraws and sends itself, and a carrier
// leaves when its own call is over. docs/groups.md has the protocol and why it is safe.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithms/alltoall/choose.hpp"
#include "base/status.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/shm/parcel_board.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

/// EPCCL_GROUP_AGGREGATE.
enum class Aggregate : uint8_t { never, always, automatic };

struct CarryPolicy {
  Aggregate aggregate = Aggregate::automatic;
  algorithms::CostParameters cost;
  double gather_seconds = 20e-6;     // a carrier waits for the parcels of others before it writes
  double patience_seconds = 100e-6;  // an origin waits for its carrier
  double tail_seconds = 50e-3;       // a lane may stand still with half a frame
  double leave_seconds = 1e-3;       // the same, when the carrier has nothing else to do in its call
};

class Carrying {
 public:
  /// `network` may be null. `board` too: then nothing is carried.
  Carrying(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
           transports::MessageTransport* network, const CarryPolicy& policy);

  /// The longest message that is carried.
  static constexpr uint64_t largest_message = 16 << 10;
  bool possible() const { return lanes_ != nullptr; }

  /// A call begins, which has `sends` that might be carried.
  void begin(const algorithms::GroupSends& sends);
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
    uint64_t carried = 0;    // own messages that another rank or an own lane carried
    uint64_t withdrawn = 0;  // own parcels that were withdrawn
    uint64_t returned = 0;   // own parcels that a carrier gave back
    uint64_t parcels = 0;    // written to own lanes, own ones included
    uint64_t cuts = 0;       // own lanes cut in the middle of a frame
  };
  const Counters& counters() const { return counters_; }

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
  /// What a lane is to take, and what it has taken in part.
  struct Lane {
    int node = 0, destination = 0;
    transports::LocalMask offers{};
    double since = 0;               // the first of them came
    transports::LocalMask ahead{};  // second parcels of one call of this rank: for its next one
    double ahead_since = 0;
    transports::LocalMask lately{}, now{};  // who had parcels in the last call, and in this
    transports::ParcelSlot* tail = nullptr;
    int tail_origin = 0;
    size_t tail_written = 0;
    double tail_since = 0;
  };
  struct KnownParcel {
    uint64_t call = 0;  // that has it; else there is none
    size_t index = 0;   // in parcels_
  };
  /// How far a carrier is worth waiting for: after some parcels that it did not take up, or that left alone, no more are given
  /// to it for a while.
  struct Trust {
    int score = 0;
    uint64_t resume_at = 0;  // call
    uint64_t period = 0;
    double trial = 0;          // the one it took part in last: its end
    uint64_t trial_begin = 0;  // call
  };

  void open_lanes();
  bool wants(int carrier);
  void judge(int carrier, bool paid);

  Result<bool> progress_parcels(double now);
  Parcel& parcel_for(int destination);
  Result<bool> conclude(Parcel& parcel, double now);
  Status send_rest(const Parcel& parcel, size_t from);
  bool carrier_is_gone(int carrier) const;

  bool progress_lanes(double now, bool leaving);
  void collect(double now);
  static void take_what_is_ahead(Lane& lane, double since);
  bool is_due(const Lane& lane, double now) const;
  bool expects(const Lane& lane, int local) const;
  bool flush(Lane& lane, double now);
  bool write_tail(Lane& lane, double now);
  void give_tail_back(Lane& lane);

  const topology::Cluster& cluster_;
  const int rank_, local_, local_size_;
  transports::NodeMemory& node_;
  transports::MessageTransport* network_;
  transports::Lanes* lanes_ = nullptr;
  const CarryPolicy policy_;
  transports::ParcelBoard board_;

  uint64_t calls_ = 0, worthwhile_calls_ = 0;
  bool inside_ = false, worthwhile_ = false, lanes_wanted_ = false, stays_awake_ = false;
  double laid_out_at_ = 0, leaving_since_ = 0;
  std::vector<Parcel> parcels_;  // while offers are made: all of the call; then those that are not concluded
  std::vector<Item> items_;
  std::vector<KnownParcel> known_;  // by [carrier][node]
  std::vector<Trust> trust_;        // by carrier
  std::vector<Lane> own_lanes_;     // to the ranks of this rank's rail
  Counters counters_;
};

}  // namespace epccl::runtime
