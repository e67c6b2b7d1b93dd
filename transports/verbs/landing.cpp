// Small messages of host memory that come to receives in a GPU's memory: the GPU copies them, since no processor may. The sender
// cannot know, and has forgotten them.
#include <algorithm>
#include <cstring>

#include "transports/verbs/conversation.hpp"

namespace epccl::transports::verbs {

/// Starts the copy. An error is the GPU's, of which nothing more can be expected.
Status Conversation::land(Receive& receive, const std::byte* data, size_t bytes) {
  auto& queue = shared_.landing_queues[receive.device];
  if (queue == nullptr) {
    EPCCL_ASSIGN(queue, receive.device->make_queue(device::QueueKind::copy_engine));
  }
  auto landing = std::make_unique<Landing>();
  landing->bytes.assign(data, data + bytes);
  EPCCL_ASSIGN(landing->copied, receive.device->make_event());
  const device::CopyWork copy{receive.data, landing->bytes.data(), bytes};
  EPCCL_TRY(queue->copy({&copy, 1}));
  receive.landing = std::move(landing);
  ++shared_.landings;
  return queue->record(*receive.landing->copied);
}

bool Conversation::settle_landings() {
  bool moved = false;
  for (auto next = receives_.begin(); next != receives_.end() && failure_.ok();) {
    Receive& receive = *next++;
    if (receive.landing == nullptr) continue;
    const auto over = receive.landing->copied->complete();
    if (!over.ok()) {
      fail(over.status());
      return true;
    }
    if (!*over) continue;
    receive.landing.reset();
    --shared_.landings;
    finish_delivered(receive);
    moved = true;
  }
  return moved;
}

/// Its buffer is not written any more.
Status Conversation::wait_for_landing(Receive& receive) {
  if (receive.landing == nullptr) return {};
  const Status over = shared_.landing_queues[receive.device]->synchronize();
  receive.landing.reset();
  --shared_.landings;
  return over.ok() ? over : describe(false, receive.bytes, over);
}

}  // namespace epccl::transports::verbs
