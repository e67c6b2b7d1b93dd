// How an arrangement begins, and how it is made better step by step.
#pragma once

#include <cstdint>
#include <span>

#include "ep/placement/arrangement.hpp"

namespace epccl::ep {

/// Puts copies of all experts on ranks that have none: as many of each that the largest share becomes as small as it can, then each
/// where there is least to do, the largest first.
void arrange(Arrangement& empty, std::span<const double> load);

/// Puts each expert that no rank has on the rank that has least to do then, in place of another's second copy where none has room.
/// There are as many slots as experts.
void add_missing(Arrangement& arrangement, std::span<const double> load);

/// While the fullest rank has more than 1 + `tolerance` times the mean: makes that one or two changes that leave the ranks
/// concerned with less than it has now, most less for each copy that moves; ends where there are none, or after `max_moves` more
/// moves.
void improve(Arrangement& arrangement, double tolerance, uint64_t max_moves);

}  // namespace epccl::ep
