// What becomes of a conversation when a rail is lost and when it comes back.
//
// Nobody knows which of the requests that were under way have arrived: their acknowledgements may be what was lost. A reliable
// queue pair delivers in order, so it is enough that each side counts what it has received. It says so over TCP once its
// queue pair takes nothing any more; what the other had posted beyond that goes over another rail, once.
#include <algorithm>
#include <cstring>

#include "transports/verbs/conversation.hpp"

namespace epccl::transports::verbs {

bool Conversation::has_rail_beside(size_t rail) const {
  for (size_t other = 0; other < pairs_.size(); ++other)
    if (other != rail && has_rail(other)) return true;
  return false;
}

void Conversation::lose_rail(size_t rail) {
  if (rail >= pairs_.size() || pairs_[rail]->stopped()) return;
  pairs_[rail]->stop();
  ++shared_.work.rails_lost;
}

void Conversation::move_from_rail(size_t rail, uint64_t received) {
  if (rail >= pairs_.size() || !pairs_[rail]->stopped()) return;
  // Taken out first: what is submitted meanwhile may fail, and then there are no queue pairs any more.
  std::vector<WorkRequest> writes;
  std::vector<std::vector<std::byte>> messages;
  const Rail& lost = pairs_[rail]->rail();
  pairs_[rail]->hand_over(
      received, [this](const WorkRequest& request) { on_part_acknowledged(request); },
      [&](const WorkRequest& request) {
        ++shared_.work.moved;
        if (request.kind != WorkRequest::Kind::message) return writes.push_back(request);
        const std::byte* at = request.slot >= 0 ? lost.slot(request.slot) : request.small.data();
        messages.emplace_back(at, at + (request.slot >= 0 ? request.bytes : request.small_bytes));
      });
  for (const auto& message : messages)
    if (failure_.ok()) resend(message);
  for (WorkRequest& request : writes) {
    if (!failure_.ok()) return;
    if (request.owner == nullptr) continue;  // of no bytes: it only asked for an answer
    QueuePair& pair = home();
    const Send& send = *static_cast<const Send*>(request.owner);
    request.local_key = send.region->local_key(pair.rail_index());
    request.remote_key = send.advert.keys[pair.rail_index()];
    submit(pair, request);
  }
}

void Conversation::resend(std::span<const std::byte> message) {
  WorkRequest request;
  std::byte* at = request.small.data();
  if (message.size() <= request.small.size()) {
    request.small_bytes = static_cast<uint8_t>(message.size());
  } else {
    request.slot = home().rail().take_slot();
    if (request.slot < 0) return (void)kept_.emplace_back(message.begin(), message.end());
    request.bytes = static_cast<uint32_t>(message.size());
    at = home().rail().slot(request.slot);
  }
  std::memcpy(at, message.data(), message.size());
  submit(home(), request);
}

bool Conversation::resend_kept() {
  const size_t before = kept_.size();
  for (size_t tries = before; tries > 0 && failure_.ok(); --tries) {
    const std::vector<std::byte> message = std::move(kept_.front());
    kept_.pop_front();
    resend(message);
  }
  return kept_.size() < before;
}

bool Conversation::is_settled(size_t rail) const {
  return open_ && rail < pairs_.size() && pairs_[rail]->stopped() && !pairs_[rail]->has_unacknowledged() &&
         !pairs_[rail]->has_waiting();
}

void Conversation::renew_rail(size_t rail, std::unique_ptr<QueuePair> pair) {
  if (is_settled(rail)) pairs_[rail] = std::move(pair);
}

void Conversation::use_rail(size_t rail) {
  if (open_ && rail < pairs_.size() && !pairs_[rail]->stopped()) pairs_[rail]->set_usable();
}

}  // namespace epccl::transports::verbs
