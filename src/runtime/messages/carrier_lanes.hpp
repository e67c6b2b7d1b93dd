// What a rank carries for its node: its lanes to the ranks of its rail, and the parcels that neighbours have laid out for them.
//
// All that the node has for one rank leaves in one write. A lane that takes a part only stands with its *tail*, which it gives back
// when that takes too long: then it is cut, and the tail's origin sends the rest itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/messages/carry_policy.hpp"
#include "topology/cluster.hpp"
#include "transports/shm/node_memory.hpp"
#include "transports/shm/parcel_board.hpp"
#include "transports/transport.hpp"

namespace epccl::runtime {

class CarrierLanes {
 public:
  CarrierLanes(const topology::Cluster& cluster, int rank, transports::NodeMemory& node,
               transports::Lanes& lanes, transports::ParcelBoard& board, const CarryPolicy& policy);

  /// This rank's call of that number begins: only in a call it carries.
  void begin(uint64_t call);
  void open();
  /// Writes what is due; all that there is where this rank is `leaving` its call. True when anything moved.
  bool progress(double now, bool leaving);
  /// Something that this rank must not sleep through is due within moments.
  bool stays_awake() const { return stays_awake_; }
  /// Whether a lane stands in the middle of a frame.
  bool pending() const;
  /// The call is over. False: not yet, a lane stands in the middle of a frame.
  bool end(double now);

  struct Counters {
    uint64_t parcels = 0;  // written, own ones included
    uint64_t cuts = 0;     // lanes cut in the middle of a frame
  };
  const Counters& counters() const { return counters_; }

 private:
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

  void collect(double now);
  static void take_what_is_ahead(Lane& lane, double since);
  bool is_due(const Lane& lane, double now) const;
  bool expects(const Lane& lane, int local) const;
  bool flush(Lane& lane, double now);
  bool write_tail(Lane& lane, double now);
  void give_tail_back(Lane& lane);

  const int local_, local_size_;
  transports::NodeMemory& node_;
  transports::Lanes& lanes_;
  transports::ParcelBoard& board_;
  const CarryPolicy& policy_;
  uint64_t call_ = 0;
  double leaving_since_ = 0;
  bool stays_awake_ = false;
  std::vector<Lane> own_;
  Counters counters_;
};

}  // namespace epccl::runtime
