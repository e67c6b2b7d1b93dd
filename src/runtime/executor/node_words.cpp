#include "runtime/executor/node_words.hpp"

#include <unistd.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/log.hpp"
#include "device/host/host_device.hpp"

namespace epccl::runtime {

Status show_words(device::Device& device, transports::NodeMemory& node) {
  const auto words = node.segment().counters();
  EPCCL_TRY(device.make_words_visible(words.data(), words.size_bytes()));
  if (auto* host = dynamic_cast<device::HostDevice*>(&device))
    host->tell_of_posts(words.data(), words.size_bytes(), [&node](const device::SignalWord& posted) {
      node.posted(node.segment().slot_of(posted));
    });
  return {};
}

int queues_each(const device::Device& device, const transports::NodeMemory& node, int most) {
  const int all = std::clamp(device.copy_engines(), 1, most);
  if (device.kind() == device::DeviceKind::host) return all;
  int here = 0;
  for (int local = 0; local < node.local_size(); ++local) here += node.is_of_this_process(local);
  return (all + here - 1) / here;
}

void release_words(transports::NodeMemory& node) {
  node.say_gave_up();
  for (device::SignalWord& each : node.segment().counters())
    if (each.load(std::memory_order_relaxed) < device::released)
      each.store(device::released, std::memory_order_release);
}

void end_use_with_peers(transports::NodeMemory& node, uint64_t sequence, double seconds,
                        const std::function<void()>& meanwhile) {
  node.end_use();
  const double until = now_seconds() + seconds;
  int peer = node.peer_that_uses(sequence);
  for (; peer >= 0 && now_seconds() < until; peer = node.peer_that_uses(sequence)) {
    meanwhile();
    usleep(200);
  }
  if (peer >= 0)
    log::warn(log::coll, -1,
              "call {} has failed, and local rank {} (pid {}) may still use its buffers after {} s", sequence,
              peer, node.pid(peer), seconds);
}

void hide_words(device::Device& device, transports::NodeMemory& node) {
  device.hide_words(node.segment().counters().data(), node.segment().mapping());
}

}  // namespace epccl::runtime
