// The transport's part in what devices tell: that something was sent or has come, that a queue pair broke, how ports are.
#include <endian.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include "base/allowed_calls.hpp"
#include "base/log.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace epccl::transports {

using verbs::Conversation;
using verbs::QueuePair;

bool VerbsTransport::poll_rail(size_t rail) {
  std::array<ibv_wc, 16> completions;
  const int count = shared_.rails[rail]->poll(completions);
  if (count <= 0) return false;
  polling_ = true;
  for (int i = 0; i < count; ++i) on_completion(rail, completions[static_cast<size_t>(i)]);
  polling_ = false;
  if (Status status = shared_.rails[rail]->repost_if_many(); !status.ok())
    log::warn(log::net, rank_, "{}", status.message());
  return true;
}

void VerbsTransport::on_completion(size_t rail, const ibv_wc& completion) {
  if ((completion.wr_id & verbs::received_mark) != 0) return on_received(rail, completion);
  ++shared_.work.send_completions;
  const Owner owner = by_id_[completion.wr_id];
  if (owner.conversation == nullptr || owner.conversation->pairs().size() <= rail) return;
  QueuePair* pair = owner.conversation->pairs()[rail].get();
  // The end of a queue pair that was replaced may still be told.
  if (pair->id() != completion.wr_id || pair->stopped()) return;
  if (completion.status != IBV_WC_SUCCESS) return on_broken(owner, completion);
  owner.conversation->acknowledged(*pair);
}

void VerbsTransport::on_received(size_t rail, const ibv_wc& completion) {
  ++shared_.work.receive_completions;
  const auto buffer = static_cast<uint32_t>(completion.wr_id & ~verbs::received_mark);
  const auto found = by_number_[rail].find(completion.qp_num);
  Owner owner = found == by_number_[rail].end() ? Owner{} : found->second;
  if (owner.conversation != nullptr && completion.status != IBV_WC_SUCCESS) {
    on_broken(owner, completion);
  } else if (owner.conversation != nullptr) {
    Conversation& conversation = *owner.conversation;
    // Who sends can receive, though its word for it may not have been read yet.
    if (!conversation.is_open()) opened(conversation.peer());
    if (rail < conversation.pairs().size()) conversation.pairs()[rail]->count_received();
    Status status;
    if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
      const auto signal = verbs::Signal::decode(be32toh(completion.imm_data));
      verbs::Receive* receive = shared_.adverts.find(signal.id);
      if (receive != nullptr && receive->conversation == &conversation)
        status = conversation.signalled(*receive, signal);
    } else {
      status = conversation.arrived(shared_.rails[rail]->buffer(buffer).first(completion.byte_len));
    }
    if (!status.ok()) failed(conversation.peer(), std::move(status));
  }
  shared_.rails[rail]->give_back(buffer);
}

void VerbsTransport::on_broken(const Owner& owner, const ibv_wc& completion) {
  Conversation& conversation = *owner.conversation;
  if (!conversation.failure().ok() || !conversation.has_rail(owner.rail)) return;
  const verbs::Rail& rail = *shared_.rails[owner.rail];
  Status why = error(Code::remote_error,
                     "the connection with rank {} over {} broke: {} (status {}, vendor code {:#x})",
                     conversation.peer(), rail.port().name(), rail.library().wc_status_str(completion.status),
                     static_cast<int>(completion.status), completion.vendor_err);
  lost_.push_back({conversation.peer(), owner.rail, std::move(why)});
}

bool VerbsTransport::poll_events() {
  quiet_polls_ = 0;
  shared_.memory.tidy();
  shared_.device_memory.tidy();
  std::array<epoll_event, 16> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  if (count < 0 && errno != EINTR) {
    const Status why = call_error(errno, "epoll_wait");
    for (const auto& [rank, peer] : peers_) failed(rank, why);
  }
  bool moved = false;
  for (int i = 0; i < count; ++i) {
    const uint64_t tag = events[static_cast<size_t>(i)].data.u64;
    if (tag >= device_tag) {
      on_device_events(tag - device_tag);
    } else if (tag >= channel_tag) {
      shared_.rails[tag - channel_tag]->quiet();
      continue;
    } else {
      wireup_.handle(tag);
    }
    moved = true;
  }
  armed_ = false;
  return moved;
}

void VerbsTransport::on_device_events(size_t rail) {
  verbs::Rail& of = *shared_.rails[rail];
  verbs::Rail::Event event{};
  while (of.next_event(event)) {
    if (!event.this_port) continue;
    log::info(log::net, rank_, "{}: {}", of.port().name(), of.library().event_type_str(event.type));
    if (!options_.failover) continue;
    if (event.type == IBV_EVENT_PORT_ACTIVE) offer_rail_to_all(rail);
    if (event.type != IBV_EVENT_PORT_ERR && event.type != IBV_EVENT_DEVICE_FATAL) continue;
    // Sooner than after all the retries of a request.
    for (auto& [rank, peer] : peers_)
      if (peer.conversation->has_rail_beside(rail) && peer.conversation->has_rail(rail))
        lost_.push_back({rank, rail, error(Code::remote_error, "{} is down", of.port().name())});
  }
}

/// Everything that has come is dealt with.
void VerbsTransport::drain_queues() {
  for (size_t rail = 0; rail < shared_.rails.size(); ++rail)
    while (poll_rail(rail)) {
    }
}

}  // namespace epccl::transports
