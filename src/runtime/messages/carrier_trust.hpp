// How far the carriers of a node are worth waiting for: after some parcels that one did not take up, or that left alone, no more are
// given to it for a while.
//
// A parcel that paid is worth half of one that did not. After two disappointments in a row the next calls go directly, after each one
// more twice as many. Calls are counted alike by ranks that do the same, so that they try again together; those that do not are asked
// along by a trial.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transports/shm/parcel_board.hpp"

namespace epccl::runtime {

class CarrierTrust {
 public:
  CarrierTrust(transports::ParcelBoard& board, int carriers)
      : board_(board), trust_(static_cast<size_t>(carriers)) {}

  /// Whether the carrier is given a parcel of that call.
  bool wants(int carrier, uint64_t call);
  /// What became of one. `paid`: it left in company.
  void judge(int carrier, uint64_t call, bool paid);

 private:
  struct Trust {
    int score = 0;
    uint64_t resume_at = 0;  // call
    uint64_t period = 0;
    double trial = 0;          // the one it took part in last: its end
    uint64_t trial_begin = 0;  // call
  };

  transports::ParcelBoard& board_;
  std::vector<Trust> trust_;
};

}  // namespace epccl::runtime
