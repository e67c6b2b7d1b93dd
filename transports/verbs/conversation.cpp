#include "transports/verbs/conversation.hpp"

#include <algorithm>
#include <cstring>

#include "base/clock.hpp"

namespace epccl::transports::verbs {

using Kind = Header::Kind;

// ---- the connection -----------------------------------------------------------------------------------------------------

Conversation::~Conversation() {
  fail(error(Code::remote_error, "rank {} has closed its connections", shared_.rank));
}

void Conversation::open(std::vector<std::unique_ptr<QueuePair>> pairs) {
  pairs_ = std::move(pairs);
  for (const auto& pair : pairs_) pair->set_usable();
  open_ = true;
  ++shared_.messages.connections;
  // A receive whose advert cannot be made is over, and one that cannot be sent ends them all.
  for (auto next = receives_.begin(); next != receives_.end() && failure_.ok();) {
    Receive& receive = *next++;
    if (needs_advert(receive) && receive.advert == 0) advertise(receive);
  }
  flush();
}

/// Where small messages go: conversations take rails in turn.
QueuePair& Conversation::home() const {
  const size_t count = pairs_.size();
  const size_t first = static_cast<size_t>(peer_ + shared_.rank) % count;
  for (size_t i = 0; i < count; ++i)
    if (has_rail((first + i) % count)) return *pairs_[(first + i) % count];
  return *pairs_[first];
}

std::vector<size_t> Conversation::live_rails() const {
  std::vector<size_t> live;
  for (size_t rail = 0; rail < pairs_.size(); ++rail)
    if (has_rail(rail)) live.push_back(rail);
  return live;
}

void Conversation::submit(QueuePair& pair, const WorkRequest& request) {
  if (Status status = pair.submit(request); !status.ok()) fail(std::move(status));
}

Status Conversation::control(Header header, const Advert* advert) {
  if (!open_) return failure_;
  header.taken = told_taken_ = taken_;
  WorkRequest request;
  std::memcpy(request.small.data(), &header, sizeof header);
  request.small_bytes = sizeof header;
  if (advert != nullptr) {
    std::memcpy(request.small.data() + sizeof header, advert, sizeof *advert);
    request.small_bytes += sizeof *advert;
  }
  submit(home(), request);
  return failure_;
}

// ---- sending ------------------------------------------------------------------------------------------------------------

void Conversation::send(MessageKey key, const void* data, size_t bytes, Completion& completion,
                        const DeviceRegion* memory) {
  completion.state = Completion::State::pending;
  completion.bytes = 0;
  if (!failure_.ok()) {
    completion.status = describe(true, bytes, failure_);
    completion.finish(Completion::State::failed);
    return;
  }
  ++shared_.messages.messages_sent;
  shared_.messages.bytes_sent += bytes;
  const auto* from = static_cast<const std::byte*>(data);
  const bool of_device = memory != nullptr && bytes > 0;
  if (open_ && fresh_ == 0 && !of_device && bytes <= shared_.eager_limit && in_window(bytes) &&
      send_eager(key, from, bytes)) {
    completion.status = failure_.ok() ? Status() : describe(true, bytes, failure_);
    completion.finish(failure_.ok() ? Completion::State::done : Completion::State::failed);
    return;
  }
  Send& send = sends_.emplace_back();
  send.self = std::prev(sends_.end());
  send.key = key;
  send.data = from;
  send.bytes = bytes;
  send.completion = &completion;
  if (of_device) send.region = memory->region();
  ++fresh_;
  ++shared_.waiting_sends;
  if (open_) flush();
}

bool Conversation::in_window(size_t bytes) const {
  return bytes == 0 || eager_sent_ - eager_taken_ + bytes <= shared_.window;
}

/// False: there is no room.
bool Conversation::send_eager(MessageKey key, const std::byte* data, size_t bytes) {
  const size_t whole = sizeof(Header) + bytes;
  Header header;
  header.kind = Kind::eager;
  header.key = key;
  header.bytes = bytes;
  header.taken = taken_;
  WorkRequest request;
  std::byte* at = request.small.data();
  if (whole <= request.small.size()) {
    request.small_bytes = static_cast<uint8_t>(whole);
  } else {
    request.slot = home().rail().take_slot();
    if (request.slot < 0) return false;
    request.bytes = static_cast<uint32_t>(whole);
    at = home().rail().slot(request.slot);
  }
  std::memcpy(at, &header, sizeof header);
  if (bytes > 0) std::memcpy(at + sizeof header, data, bytes);
  told_taken_ = taken_;
  eager_sent_ += whole;
  submit(home(), request);
  return true;
}

bool Conversation::flush() {
  if (!open_ || !failure_.ok()) return false;
  bool moved = false;
  for (const auto& pair : pairs_) {
    if (!pair->usable() || !pair->has_waiting()) continue;
    auto flushed = pair->flush();
    if (!flushed.ok()) {
      fail(std::move(flushed).take_status());
      return true;
    }
    moved |= *flushed;
  }
  if (!kept_.empty()) moved |= resend_kept();
  for (auto next = sends_.begin(); fresh_ > 0 && next != sends_.end() && failure_.ok();) {
    Send& send = *next++;
    if (send.stage != Send::Stage::fresh) continue;
    if (!may_be_eager(send) || !in_window(send.bytes)) {
      wait_for_advert(send);
    } else if (send_eager(send.key, send.data, send.bytes)) {
      if (failure_.ok()) finish(send, Status());
    } else {
      break;
    }
    moved = true;
  }
  return moved;
}

bool Conversation::has_waiting() const {
  return fresh_ > 0 || !kept_.empty() || std::any_of(pairs_.begin(), pairs_.end(), [](const auto& pair) {
           return pair->usable() && pair->has_waiting();
         });
}

void Conversation::wait_for_advert(Send& send) {
  send.stage = Send::Stage::for_advert;
  --fresh_;
  const auto known = std::find_if(adverts_.begin(), adverts_.end(),
                                  [&](const KnownAdvert& advert) { return advert.key == send.key; });
  if (known != adverts_.end()) {
    const KnownAdvert advert = *known;
    adverts_.erase(known);
    return begin_write(send, advert);
  }
  send.since = now_seconds();
  if (send.bytes > shared_.eager_limit) return;
  // Its receive, if small, sends no advert by itself.
  send.asked = true;
  (void)control({.kind = Kind::ask, .key = send.key, .bytes = send.bytes});
}

void Conversation::ask(double now) {
  constexpr double patience = 20e-3;
  if (!open_) return;
  for (Send& send : sends_) {
    if (send.stage != Send::Stage::for_advert || send.asked || now - send.since < patience) continue;
    send.asked = true;
    if (!control({.kind = Kind::ask, .key = send.key, .bytes = send.bytes}).ok()) return;
  }
}

void Conversation::begin_write(Send& send, const KnownAdvert& known) {
  send.stage = Send::Stage::writing;
  if (send.bytes > known.bytes) {
    (void)control({.kind = Kind::too_long, .id = known.id, .key = send.key, .bytes = send.bytes});
    if (failure_.ok()) finish(send, Status());
    return;
  }
  if (Status status = write_parts(send, known); !status.ok() && failure_.ok())
    finish(send, std::move(status));
}

Status Conversation::write_parts(Send& send, const KnownAdvert& known) {
  if (send.region == nullptr) {
    auto region = shared_.memory.get(shared_.rails, send.data, send.bytes, false, shared_.work.registrations);
    if (!region.ok()) return describe(true, send.bytes, region.status());
    send.region = std::move(region).value();
  }
  send.advert = known.advert;
  const bool shorter = send.bytes < known.bytes;
  if (shorter)
    EPCCL_TRY(control({.kind = Kind::length, .id = known.id, .key = send.key, .bytes = send.bytes}));

  const std::vector<size_t> live = live_rails();
  if (live.empty())
    return describe(true, send.bytes, error(Code::remote_error, "no RDMA port is left on the way"));
  const size_t parts = std::clamp<size_t>(send.bytes / shared_.stripe, 1, live.size());
  send.parts_left = static_cast<uint32_t>(parts);
  const Signal signal{known.id, static_cast<uint32_t>(parts), shorter};
  const auto first = static_cast<size_t>(peer_ + shared_.rank) % live.size();
  constexpr size_t line = 64;
  size_t begin = 0;
  for (size_t part = 0; part < parts; ++part) {
    QueuePair& pair = *pairs_[live[(first + part) % live.size()]];
    const size_t end = part + 1 == parts ? send.bytes : send.bytes / parts * (part + 1) / line * line;
    while (begin < end) {
      const size_t piece = std::min<size_t>(end - begin, pair.rail().port().max_message);
      WorkRequest request;
      request.kind = begin + piece < end ? WorkRequest::Kind::write : WorkRequest::Kind::signal;
      request.data = send.data + begin;
      request.bytes = static_cast<uint32_t>(piece);
      request.local_key = send.region->local_key(pair.rail_index());
      request.remote = send.advert.address + begin;
      request.remote_key = send.advert.keys[pair.rail_index()];
      request.signal = signal.encode();
      request.owner = &send;
      submit(pair, request);
      if (!failure_.ok()) return failure_;
      begin += piece;
    }
  }
  return {};
}

void Conversation::acknowledged(QueuePair& pair) {
  pair.acknowledged([this](const WorkRequest& request) { on_part_acknowledged(request); });
}

void Conversation::on_part_acknowledged(const WorkRequest& request) {
  Send& send = *static_cast<Send*>(request.owner);
  if (--send.parts_left == 0) finish(send, Status());
}

void Conversation::finish(Send& send, Status status) {
  if (send.stage == Send::Stage::fresh) --fresh_;
  --shared_.waiting_sends;
  Completion& completion = *send.completion;
  const bool ok = status.ok();
  completion.status = std::move(status);
  completion.finish(ok ? Completion::State::done : Completion::State::failed);
  sends_.erase(send.self);
}

// ---- the end ------------------------------------------------------------------------------------------------------------

Status Conversation::describe(bool sending, size_t bytes, const Status& why) const {
  return error(why.code() == Code::system_error ? Code::system_error : Code::remote_error,
               "{} {} bytes {} rank {}: {}", sending ? "sending" : "receiving", bytes,
               sending ? "to" : "from", peer_, why.message());
}

void Conversation::fail(Status why) {
  if (failure_.ok()) failure_ = std::move(why);
  open_ = false;
  pairs_.clear();
  while (!sends_.empty()) finish(sends_.front(), describe(true, sends_.front().bytes, failure_));
  while (!receives_.empty()) {
    Receive& receive = receives_.front();
    Status landed = wait_for_landing(receive);
    finish(receive, receive.delivered ? std::move(landed) : describe(false, receive.capacity, failure_));
  }
}

bool Conversation::has_unacknowledged() const {
  return std::any_of(pairs_.begin(), pairs_.end(),
                     [](const auto& pair) { return pair->has_unacknowledged() || pair->has_waiting(); });
}

void Conversation::ask_for_end() {
  for (const auto& pair : pairs_)
    if (pair->usable()) (void)pair->ask_for_end();
}

}  // namespace epccl::transports::verbs
