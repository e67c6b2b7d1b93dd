// Recursive doubling between nodes: few messages one after the other, where what is added up is small.
//
//   nodes 0 .. 6      4 of them double         of  0   1   2   3
//     4, 5, 6 send what they have to             0+4 1+5 2+6  3
//     0, 1, 2, which add it to their own
//     0 <-> 1, 2 <-> 3                           (0+4)+(1+5)  (2+6)+3
//     0 <-> 2, 1 <-> 3                           both sums, on all four
//     0, 1, 2 send the result to 4, 5, 6
//
// Two nodes that exchange what they have add up the lower one's first, both of them, so all have the same bits. (But an input that
// nothing was added to yet is added before sums are: again on both alike.)
#pragma once

#include "algorithms/collectives/reducer.hpp"

namespace epccl::algorithms {

/// A carrier's part, for a chunk of its slice.
void finish_by_doubling(RoundBuilder& b, Reducer& reducer, int position, const Range& chunk);

}  // namespace epccl::algorithms
