// The receiving half of a conversation, and what the sending half is told.
#include <algorithm>
#include <cstring>

#include "transports/verbs/conversation.hpp"

namespace epccl::transports::verbs {

using Kind = Header::Kind;

std::list<Receive>::iterator Conversation::find_posted(MessageKey key) {
  return std::find_if(receives_.begin(), receives_.end(),
                      [key](const Receive& receive) { return receive.key == key && !receive.delivered; });
}

void Conversation::recv(MessageKey key, void* data, size_t bytes, Completion& completion,
                        const DeviceRegion* memory) {
  completion.state = Completion::State::pending;
  completion.bytes = 0;
  const auto early =
      std::find_if(early_.begin(), early_.end(), [key](const Early& message) { return message.key == key; });
  if (!failure_.ok() && early == early_.end()) {
    completion.status = describe(false, bytes, failure_);
    completion.finish(Completion::State::failed);
    return;
  }
  if (spare_.empty()) spare_.emplace_back();
  receives_.splice(receives_.end(), spare_, spare_.begin());
  Receive& receive = receives_.back();
  receive = {};
  receive.conversation = this;
  receive.key = key;
  receive.data = static_cast<std::byte*>(data);
  receive.capacity = bytes;
  receive.completion = &completion;
  if (memory != nullptr && bytes > 0) {
    receive.device = &memory->device();
    receive.region = memory->region();
  }
  if (early != early_.end()) {
    const Early message = std::move(*early);
    early_.erase(early);
    if (message.asked && !failure_.ok()) return finish(receive, describe(false, bytes, failure_));
    if (message.bytes > bytes && message.asked) {
      if (control({.kind = Kind::refused, .key = key}).ok()) finish(receive, too_long(message.bytes, bytes));
      return;
    }
    if (message.bytes > bytes) {
      finish(receive, too_long(message.bytes, bytes));
      return count_taken(sizeof(Header) + message.bytes);
    }
    if (!message.asked) return deliver(receive, message.data.get(), message.bytes);
    return advertise(receive);
  }
  if (open_ && needs_advert(receive)) advertise(receive);
}

/// Tells the sender where the message may be written.
void Conversation::advertise(Receive& receive) {
  if (receive.region == nullptr) {
    auto region =
        shared_.memory.get(shared_.rails, receive.data, receive.capacity, true, shared_.work.registrations);
    if (!region.ok()) return finish(receive, describe(false, receive.capacity, region.status()));
    receive.region = std::move(region).value();
  }
  receive.advert = shared_.adverts.add(receive);
  if (receive.advert == 0)
    return finish(receive, error(Code::internal_error, "too many large receives at once"));
  receive.bytes = receive.capacity;
  Advert advert;
  advert.address = reinterpret_cast<uint64_t>(receive.data);
  for (size_t rail = 0; rail < shared_.rails.size(); ++rail)
    advert.keys[rail] = receive.region->remote_key(rail);
  (void)control({.kind = Kind::advert, .id = receive.advert, .key = receive.key, .bytes = receive.capacity},
                &advert);
}

Status Conversation::arrived(std::span<const std::byte> message) {
  Header header;
  if (message.size() < sizeof header)
    return error(Code::remote_error, "a message of {} bytes is no message", message.size());
  std::memcpy(&header, message.data(), sizeof header);
  const std::span<const std::byte> rest = message.subspan(sizeof header);
  eager_taken_ =
      std::max(eager_taken_, header.taken);  // what is sent again over another rail says what was so before
  Receive* const told = shared_.adverts.find(header.id);
  const bool own = told != nullptr && told->conversation == this;
  switch (header.kind) {
    case Kind::eager:
      return on_eager(header, rest);
    case Kind::advert: {
      Advert advert;
      if (rest.size() < sizeof advert) return error(Code::remote_error, "an advert is cut short");
      std::memcpy(&advert, rest.data(), sizeof advert);
      on_advert(header, advert);
      return {};
    }
    case Kind::ask:
      on_ask(header);
      return {};
    case Kind::refused:
      on_refused(header);
      return {};
    case Kind::too_long:
      if (own) finish(*told, too_long(header.bytes, told->capacity));
      return {};
    case Kind::length:
      if (own && header.bytes <= told->capacity) {
        told->bytes = header.bytes;
        told->length_known = true;
        complete_if_whole(*told);
      }
      return {};
    case Kind::withdraw:
      on_withdraw(header);
      return {};
    case Kind::withdrawn:
      if (own && told->withdrawing) {
        told->withdrawing = false;
        finish_delivered(*told);
      }
      return {};
    case Kind::taken:
      return {};
  }
  return error(Code::remote_error, "a message is of kind {}", static_cast<int>(header.kind));
}

Status Conversation::on_eager(const Header& header, std::span<const std::byte> data) {
  if (data.size() < header.bytes)
    return error(Code::remote_error, "a message of {} bytes comes with {}", header.bytes, data.size());
  const auto posted = find_posted(header.key);
  if (posted == receives_.end()) {
    Early& early = early_.emplace_back();
    early.key = header.key;
    early.bytes = header.bytes;
    early.data = std::make_unique_for_overwrite<std::byte[]>(header.bytes);
    if (header.bytes > 0) std::memcpy(early.data.get(), data.data(), header.bytes);
    return {};
  }
  if (header.bytes > posted->capacity) {
    finish(*posted, too_long(header.bytes, posted->capacity));
    count_taken(sizeof header + header.bytes);
    return {};
  }
  deliver(*posted, data.data(), header.bytes);
  return {};
}

void Conversation::deliver(Receive& receive, const std::byte* data, size_t bytes) {
  receive.bytes = bytes;
  if (bytes > 0 && receive.device != nullptr) {
    if (Status status = land(receive, data, bytes); !status.ok()) return fail(std::move(status));
  } else if (bytes > 0) {
    std::memcpy(receive.data, data, bytes);
  }
  receive.delivered = true;
  // The sender was told to write there: only when it has put that out of its mind may the buffer be used.
  receive.withdrawing = receive.advert != 0;
  if (!receive.withdrawing)
    finish_delivered(receive);
  else if (failure_.ok())
    (void)control({.kind = Kind::withdraw, .id = receive.advert, .key = receive.key});
  count_taken(sizeof(Header) + bytes);
}

void Conversation::finish_delivered(Receive& receive) {
  if (receive.withdrawing || receive.landing != nullptr) return;
  finish(receive, receive.bytes);
}

/// May end the conversation, and all receives with it: the last thing that is done for one.
void Conversation::count_taken(size_t bytes) {
  taken_ += bytes;
  if (open_ && taken_ - told_taken_ > shared_.window / 2) (void)control({.kind = Kind::taken});
}

Status Conversation::signalled(Receive& receive, const Signal& signal) {
  ++receive.parts_seen;
  receive.signal = signal;
  complete_if_whole(receive);
  return {};
}

void Conversation::complete_if_whole(Receive& receive) {
  if (receive.parts_seen == 0 || receive.parts_seen < receive.signal.parts) return;
  if (receive.signal.shorter && !receive.length_known) return;
  if (receive.device != nullptr)
    if (Status seen = receive.device->admit_foreign_writes(); !seen.ok())
      return finish(receive, describe(false, receive.bytes, seen));
  finish(receive, receive.bytes);
}

void Conversation::finish(Receive& receive, size_t bytes) {
  ++shared_.messages.messages_received;
  shared_.messages.bytes_received += bytes;
  Completion& completion = *receive.completion;
  completion.bytes = bytes;
  remove(receive);
  completion.finish(Completion::State::done);
}

void Conversation::finish(Receive& receive, Status status) {
  if (status.ok()) return finish(receive, receive.bytes);
  Completion& completion = *receive.completion;
  remove(receive);
  completion.status = std::move(status);
  completion.finish(Completion::State::failed);
}

void Conversation::remove(Receive& receive) {
  if (receive.advert != 0) shared_.adverts.remove(receive.advert);
  receive.region.reset();
  const auto at = std::find_if(receives_.begin(), receives_.end(),
                               [&](const Receive& other) { return &other == &receive; });
  spare_.splice(spare_.begin(), receives_, at);
}

Status Conversation::too_long(size_t bytes, size_t capacity) const {
  return error(Code::invalid_usage, "rank {} sent {} bytes where rank {} receives at most {}", peer_, bytes,
               shared_.rank, capacity);
}

// ---- what the sending half is told --------------------------------------------------------------------------------------

void Conversation::on_advert(const Header& header, const Advert& advert) {
  const KnownAdvert known{header.key, header.id, header.bytes, advert};
  const auto send = std::find_if(sends_.begin(), sends_.end(), [&](const Send& other) {
    return other.key == header.key && other.stage == Send::Stage::for_advert;
  });
  if (send != sends_.end()) return begin_write(*send, known);
  adverts_.push_back(known);
}

void Conversation::on_ask(const Header& header) {
  const auto posted = find_posted(header.key);
  if (posted == receives_.end()) {
    Early& early = early_.emplace_back();
    early.key = header.key;
    early.bytes = header.bytes;
    early.asked = true;
    return;
  }
  if (posted->advert != 0) return;  // it is on its way
  if (header.bytes <= posted->capacity) return advertise(*posted);
  if (!control({.kind = Kind::refused, .key = header.key}).ok()) return;
  finish(*posted, too_long(header.bytes, posted->capacity));
}

void Conversation::on_refused(const Header& header) {
  const auto send = std::find_if(sends_.begin(), sends_.end(), [&](const Send& other) {
    return other.key == header.key && other.stage == Send::Stage::for_advert;
  });
  if (send != sends_.end()) finish(*send, Status());
}

void Conversation::on_withdraw(const Header& header) {
  std::erase_if(adverts_, [&](const KnownAdvert& known) { return known.id == header.id; });
  (void)control({.kind = Kind::withdrawn, .id = header.id, .key = header.key});
}

}  // namespace epccl::transports::verbs
