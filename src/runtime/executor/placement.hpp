// Where the ranks of a node run, while they outnumber its cores.
#pragma once

namespace epccl::runtime {

/// The core that its local position makes this rank's own, among those that the calling thread may use; -1 where there is no
/// choice.
int home_core(int local);

/// Moves the calling thread to `core`, and leaves it free to move on: its affinity is afterwards what it was before.
///
/// Ranks that yield to each other look busy and cache-hot to the scheduler: six on one core and two on the other can stay
/// so for seconds. While none sleeps an even start lasts just as long; ranks that wake up come to lie anywhere.
void go_to_core(int core);

}  // namespace epccl::runtime
