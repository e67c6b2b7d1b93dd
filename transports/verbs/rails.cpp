// The transport's part in losing rails and getting them back: see rail_changes.cpp for what becomes of the messages.
#include "base/log.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace epccl::transports {

using verbs::Conversation;
using verbs::Notice;

void VerbsTransport::settle_lost_rails() {
  while (!lost_.empty()) {
    const LostRail lost = std::move(lost_.back());
    lost_.pop_back();
    lose(lost);
  }
}

void VerbsTransport::lose(const LostRail& lost) {
  Conversation& conversation = *peer_at(lost.peer).conversation;
  if (!conversation.failure().ok() || !conversation.has_rail(lost.rail)) return;
  if (!options_.failover) return failed(lost.peer, Status(lost.why));
  if (!conversation.has_rail_beside(lost.rail))
    return failed(lost.peer, Status(lost.why).with_context("no rail is left"));
  conversation.lose_rail(lost.rail);
  // What has come over it is here, and nothing comes any more.
  while (poll_rail(lost.rail)) {
  }
  if (!conversation.failure().ok()) return;
  log::warn(log::net, rank_, "{}; its other rails take over", lost.why.message());
  Notice notice;
  notice.kind = Notice::Kind::rail_lost;
  notice.rail = static_cast<int32_t>(lost.rail);
  notice.received = conversation.pairs()[lost.rail]->received();
  wireup_.notify(lost.peer, notice);
}

void VerbsTransport::noticed(int peer_rank, const Notice& notice) {
  Peer& peer = peer_at(peer_rank);
  Conversation& conversation = *peer.conversation;
  const auto rail = static_cast<size_t>(notice.rail);
  if (!conversation.is_open() || rail >= conversation.pairs().size()) return;
  switch (notice.kind) {
    case Notice::Kind::rail_lost:
      if (!options_.failover)
        return failed(peer_rank, error(Code::remote_error, "it has lost its connection over {}",
                                       shared_.rails[rail]->port().name()));
      lose({peer_rank, rail,
            error(Code::remote_error, "rank {} has lost its connection over {}", peer_rank,
                  shared_.rails[rail]->port().name())});
      if (!conversation.failure().ok()) return;
      conversation.move_from_rail(rail, notice.received);
      peer.renewals[rail].settled = true;
      return connect_renewal(peer_rank, rail);
    case Notice::Kind::rail_offer:
      return on_rail_offer(peer_rank, notice);
    case Notice::Kind::rail_ready:
      return conversation.use_rail(rail);
    case Notice::Kind::ready:
      return;
  }
}

void VerbsTransport::offer_rail_to_all(size_t rail) {
  for (auto& [rank, peer] : peers_) {
    const auto& pairs = peer.conversation->pairs();
    if (peer.conversation->is_open() && rail < pairs.size() && pairs[rail]->stopped()) offer(rank, rail);
  }
}

/// Once for each loss.
void VerbsTransport::offer(int peer_rank, size_t rail) {
  Peer& peer = peer_at(peer_rank);
  verbs::QueuePair* fresh = peer.renewals[rail].pair.get();
  if (fresh != nullptr) return;
  auto made = make_pair(peer, peer_rank, rail);
  if (!made.ok()) return log::warn(log::net, rank_, "{}", made.status().message());
  peer.renewals[rail].pair = std::move(made).value();
  Notice notice;
  notice.kind = Notice::Kind::rail_offer;
  notice.rail = static_cast<int32_t>(rail);
  notice.end = peer.renewals[rail].pair->end();
  wireup_.notify(peer_rank, notice);
}

void VerbsTransport::on_rail_offer(int peer_rank, const Notice& notice) {
  const auto rail = static_cast<size_t>(notice.rail);
  Peer& peer = peer_at(peer_rank);
  peer.renewals[rail].offered = true;
  peer.renewals[rail].other = notice.end;
  offer(peer_rank, rail);
  connect_renewal(peer_rank, rail);
}

/// When both new ends are known, and nothing of the old queue pair is open.
void VerbsTransport::connect_renewal(int peer_rank, size_t rail) {
  Peer& peer = peer_at(peer_rank);
  Conversation& conversation = *peer.conversation;
  RailRenewal& renewal = peer.renewals[rail];
  if (!renewal.settled || !renewal.offered || renewal.pair == nullptr || !conversation.is_settled(rail))
    return;
  if (Status status = renewal.pair->connect(renewal.other); !status.ok())
    return log::warn(log::net, rank_, "{}", status.message());
  conversation.renew_rail(rail, std::move(renewal.pair));
  renewal = {};
  log::info(log::net, rank_, "rank {} can be reached over {} again", peer_rank,
            shared_.rails[rail]->port().name());
  Notice notice;
  notice.kind = Notice::Kind::rail_ready;
  notice.rail = static_cast<int32_t>(rail);
  wireup_.notify(peer_rank, notice);
}

}  // namespace epccl::transports
