// The node's counters as words that a device's queues post and wait for.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.hpp"
#include "device/device.hpp"
#include "transports/shm/node_memory.hpp"

namespace epccl::runtime {

/// To be called before queues use them; again does no harm. Posts of the host's queues wake ranks that sleep.
Status show_words(device::Device& device, transports::NodeMemory& node);
/// How many queues of one purpose this rank makes, where the ranks of its process are to have `most` together: a GPU puts streams into as
/// many hardware queues as it has, and each costs memory.
int queues_each(const device::Device& device, const transports::NodeMemory& node, int most);
/// Lets all queues of the node's ranks through that wait for them now.
void release_words(transports::NodeMemory& node);
/// This rank uses no buffers of peers any more in a call that failed: waits until no peer uses any, at most so long, and does `meanwhile`
/// again and again.
void end_use_with_peers(
    transports::NodeMemory& node, uint64_t sequence, double seconds,
    const std::function<void()>& meanwhile = [] {});
/// When no queue of this rank uses them any more.
void hide_words(device::Device& device, transports::NodeMemory& node);

}  // namespace epccl::runtime
