// Where ranks run that outnumber the cores they share.
#pragma once

#include <cstddef>

namespace epccl::runtime {

/// The core, of those that the calling thread may use, that is the own one of rank `position` of the `ranks` that share them; -1 where
/// there is no choice. Neighbours share a core: they are of one node, where the machine stands for several, and a rank that yields to
/// the one it waits for gets what it needs. `first_node`: of these ranks; each begins with another core, since machines may be emulated on the
/// same cores without knowing of it, and their first ranks have most to do.
int home_core(size_t position, size_t ranks, size_t first_node);

/// Moves the calling thread to `core`, and leaves it free to move on: its affinity is afterwards what it was before.
///
/// Ranks that yield to each other look busy and cache-hot to the scheduler: six on one core and two on the other can stay
/// so for seconds. While none sleeps an even start lasts just as long; ranks that wake up come to lie anywhere.
void go_to_core(int core);

}  // namespace epccl::runtime
