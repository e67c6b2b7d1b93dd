#include "runtime/bootstrap/roster.hpp"

#include <algorithm>
#include <utility>

#include "base/log.hpp"
#include "base/net.hpp"
#include "runtime/bootstrap/rank_list.hpp"

namespace epccl::runtime {
namespace {

// Notices of further deaths, or ends, say nothing new, and there may be ranks squared of them.
constexpr int max_deaths_told = 8, max_failures_told = 8;
constexpr size_t max_key = 256;

wire::Bytes frame_of(const Notice& notice) {
  wire::Writer frame(wire::Type::notice);
  return frame.u8(static_cast<uint8_t>(notice.kind))
      .i32(notice.rank)
      .reason(notice.reason)
      .text(notice.text)
      .take();
}

wire::Writer& put_left(wire::Writer& frame, const Member& member, uint64_t last_call) {
  return frame.i32(member.rank).i32(member.pid).text(member.host).u64(last_call);
}

Roster::Frame left_frame(wire::Type type, const Member& member, uint64_t last_call) {
  wire::Writer frame(type);
  return std::make_shared<const wire::Bytes>(put_left(frame, member, last_call).take());
}

const char* name_of(wire::GatherKind kind) {
  return kind == wire::GatherKind::barrier ? "barrier" : "allgather";
}

Status breach(const char* what) {
  return error(Code::remote_error, "breach of protocol: {}", what);
}

}  // namespace

Status Roster::admit(const Member& member, int ranks_claimed) {
  if (ranks_claimed < 1 || ranks_claimed > wire::max_ranks || member.rank < 0 || member.rank >= ranks_claimed)
    return error(Code::invalid_argument, "{} of {} ranks cannot be", describe(member), ranks_claimed);
  if (slots_.empty()) slots_.resize(static_cast<size_t>(ranks_claimed));
  if (ranks_claimed != ranks()) {
    const auto other = std::find_if(slots_.begin(), slots_.end(),
                                    [](const Slot& each) { return each.state != State::absent; });
    const std::string text = fmt::format("ranks disagree on their number: {} says {}, {} said {}",
                                         describe(member), ranks_claimed, describe(other->member), ranks());
    // Who is right cannot be known, so all hear of it.
    notify({Notice::Kind::mismatch, member.rank, text});
    return {Code::invalid_usage, text};
  }
  Slot& taken = slot(member.rank);
  if (!std::exchange(taken.came, true)) ++came_;
  if (first_notice_) return {Code::remote_error, first_notice_->reason, first_notice_->text};
  if (taken.state != State::absent)
    return error(Code::invalid_usage, "rank {} is taken: {} has joined as it, {} wants to", member.rank,
                 describe(taken.member), describe(member));
  taken.state = State::present;
  taken.member = member;
  ++joined_;
  ++present_;
  if (joined_ == ranks()) complete();
  return {};
}

void Roster::complete() {
  complete_ = true;
  log::info(log::init, -1, "rendezvous complete: {} ranks", ranks());
  std::vector<int> of_hub;
  for (const Slot& each : slots_)
    if (holds_hub(each.member)) of_hub.push_back(each.member.rank);
  wire::Writer frame(wire::Type::joined);
  frame.text(fmt::format("host {}, pid {}", hub_.host, hub_.pid)).u32(static_cast<uint32_t>(of_hub.size()));
  for (const int rank : of_hub) frame.i32(rank);
  broadcast(frame.take());
}

Status Roster::receive(int rank, wire::Type type, wire::Reader& body) {
  switch (type) {
    case wire::Type::gather:
      return gather(rank, body);
    case wire::Type::publish:
      return publish(rank, body);
    case wire::Type::lookup:
      return lookup(rank, body);
    case wire::Type::failure:
      return failure(rank, body);
    case wire::Type::stall:
      return stall(rank, body);
    case wire::Type::question:
      return question(rank, body);
    case wire::Type::shrink:
      return shrink(rank, body);
    case wire::Type::shrink_over:
      return shrink_over(rank, body);
    case wire::Type::leave:
      return leave(rank, body);
    case wire::Type::end:
      return end(rank, body);
    case wire::Type::watch:
      return watch(rank, body);
    default:
      return breach("a frame of a type that ranks do not send");
  }
}

Status Roster::gather(int rank, wire::Reader& body) {
  const uint32_t number = body.u32();
  const uint8_t kind = body.u8();
  const auto blob = body.blob();
  Slot& mine = slot(rank);
  if (!body.complete() || kind > 1 || !complete_ || mine.gathering)
    return breach("a malformed or untimely allgather");
  mine.gathering = true;
  mine.gather_number = number;
  mine.gather_kind = static_cast<wire::GatherKind>(kind);
  mine.gather_blob.assign(blob.begin(), blob.end());
  if (++gathering_ == 1) first_gathering_ = rank;
  // Those that came before agree with each other, so one of them speaks for all.
  const Slot& first = slot(first_gathering_);
  if (first.gather_number != number || first.gather_kind != mine.gather_kind) {
    notify({Notice::Kind::mismatch, rank,
            fmt::format("ranks disagree in set-up: {} is in {} #{}, {} in {} #{}", describe(first.member),
                        name_of(first.gather_kind), first.gather_number, describe(mine.member),
                        name_of(mine.gather_kind), number)});
    return {};
  }
  if (left_ > 0) {
    const auto gone = std::find_if(slots_.begin(), slots_.end(),
                                   [](const Slot& each) { return each.state == State::left; });
    notify({Notice::Kind::mismatch, rank,
            fmt::format("{} has left while {} is in {} #{}", describe(gone->member), describe(mine.member),
                        name_of(mine.gather_kind), number)});
    return {};
  }
  if (gathering_ == ranks()) finish_gather();
  return {};
}

void Roster::finish_gather() {
  size_t total = 0;
  for (const Slot& each : slots_) total += each.gather_blob.size();
  if (total > wire::max_gathered) {
    notify({Notice::Kind::failed, -1,
            fmt::format("an allgather of {} bytes over {} ranks; the limit is {}", total, ranks(),
                        wire::max_gathered)});
    return;
  }
  const Slot& first = slots_.front();
  wire::Writer frame(wire::Type::gathered);
  const bool barrier = first.gather_kind == wire::GatherKind::barrier;
  frame.u32(first.gather_number).u32(barrier ? 0 : static_cast<uint32_t>(ranks()));
  for (Slot& each : slots_) {
    if (!barrier) frame.blob(each.gather_blob);
    each.gather_blob = {};
    each.gathering = false;
  }
  gathering_ = 0;
  broadcast(frame.take());
}

Status Roster::publish(int rank, wire::Reader& body) {
  std::string name = body.text();
  const auto blob = body.blob();
  if (!body.complete() || name.size() > max_key) return breach("a malformed publication");
  wire::Bytes& stored = published_[Key(rank, std::move(name))];
  published_bytes_ += blob.size() - stored.size();
  stored.assign(blob.begin(), blob.end());
  if (published_bytes_ > wire::max_published)
    notify({Notice::Kind::failed, rank,
            fmt::format("{} published more than the hub keeps: {} bytes in all, the limit is {}",
                        describe(slot(rank).member), published_bytes_, wire::max_published)});
  answer_lookups_of(rank);
  return {};
}

Status Roster::lookup(int rank, wire::Reader& body) {
  const uint32_t request = body.u32();
  const int publisher = body.i32();
  std::string name = body.text();
  if (!body.complete() || publisher < 0 || publisher >= ranks()) return breach("a malformed look-up");
  waiting_[Key(publisher, std::move(name))].push_back({rank, request});
  answer_lookups_of(publisher);
  return {};
}

/// Answers what can be answered: found, or never to be published because the publisher has left.
void Roster::answer_lookups_of(int publisher) {
  auto each = waiting_.lower_bound(Key(publisher, ""));
  while (each != waiting_.end() && each->first.first == publisher) {
    const auto found = published_.find(each->first);
    const bool left = slot(publisher).state == State::left;
    if (found == published_.end() && !left) {
      ++each;
      continue;
    }
    const std::string reason = fmt::format("{} left without publishing \"{}\"",
                                           describe(slot(publisher).member), each->first.second);
    for (const Lookup& asked : each->second) {
      wire::Writer frame(wire::Type::found);
      frame.u32(asked.request).u8(found != published_.end());
      frame.blob(found != published_.end() ? std::span<const std::byte>(found->second)
                                           : std::as_bytes(std::span(reason)));
      send_(asked.asker, std::make_shared<const wire::Bytes>(frame.take()));
    }
    each = waiting_.erase(each);
  }
}

Status Roster::stall(int rank, wire::Reader& body) {
  StallReport report;
  report.sequence = body.u64();
  report.call = body.text();
  report.waiting = body.text();
  report.peers = body.ranks(slots_.size());
  if (!body.complete()) return breach("a malformed stall report");
  if (const auto wrong = calls_.waits(slot(rank).member, std::move(report)))
    notify({Notice::Kind::mismatch, rank, *wrong});
  return {};
}

Status Roster::failure(int rank, wire::Reader& body) {
  const Reason reason = body.reason();
  const std::string text = body.text();
  if (!body.complete()) return breach("a malformed failure report");
  Notice notice{Notice::Kind::failed, rank, fmt::format("{} failed: {}", describe(slot(rank).member), text),
                reason};
  // Most failures are consequences of the first one, which everybody knows. But that a rank has failed, too, is news to whoever waits for
  // it in a split or shrink.
  if (first_notice_) {
    if (++failures_told_ <= max_failures_told) broadcast(frame_of(notice), rank);
    return {};
  }
  const std::string others = calls_.others(rank);
  const bool has_asked = text.find(others) != std::string::npos;
  if (!has_asked) notice.text += "; meanwhile " + others;
  notify(std::move(notice), rank);
  return {};
}

Status Roster::question(int rank, wire::Reader& body) {
  const uint32_t request = body.u32();
  if (!body.complete()) return breach("a malformed question");
  wire::Writer frame(wire::Type::answer);
  put_missing(frame.u32(request).i32(joined_));
  frame.text(calls_.others(rank)).ranks(lost());
  send_(rank, std::make_shared<const wire::Bytes>(frame.take()));
  return {};
}

Status Roster::shrink(int rank, wire::Reader& body) {
  body.u32();  // counts as this side does
  const uint32_t count = body.u32();
  std::vector<int> excluded;
  bool is_list = complete_ && count < slots_.size();
  for (uint32_t i = 0; is_list && i < count; ++i) {
    excluded.push_back(body.i32());
    is_list = excluded.back() != rank && excluded.back() > (i == 0 ? -1 : excluded[i - 1]);
  }
  if (!is_list || !body.complete() || (!excluded.empty() && excluded.back() >= ranks()))
    return breach("a malformed list of excluded ranks");
  if (!shrinks_) shrinks_.emplace(ranks());
  for (const ShrinkLists::Verdict& verdict : shrinks_->add(rank, std::move(excluded))) {
    if (slot(verdict.rank).state != State::present) continue;
    wire::Writer frame(wire::Type::verdict);
    frame.u32(verdict.number).text(verdict.text).u32(static_cast<uint32_t>(verdict.kept.size()));
    for (const int kept : verdict.kept) frame.i32(kept);
    send_(verdict.rank, std::make_shared<const wire::Bytes>(frame.take()));
  }
  return {};
}

Status Roster::shrink_over(int rank, wire::Reader& body) {
  const uint32_t number = body.u32();
  if (!body.complete()) return breach("a malformed end of a shrink");
  if (shrinks_) shrinks_->over(rank, number);
  return {};
}

/// Ranks that have not joined, or, later, that have not come to the allgather that others are in.
void Roster::put_missing(wire::Writer& frame) const {
  uint32_t count = 0;
  std::vector<int> first;
  for (size_t rank = 0; rank < slots_.size(); ++rank) {
    const Slot& each = slots_[rank];
    if (complete_ ? each.gathering : each.state != State::absent) continue;
    if (++count <= RankList::max_listed) first.push_back(static_cast<int>(rank));
  }
  frame.u32(count).ranks(first);
}

std::vector<int> Roster::lost() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < slots_.size(); ++rank) {
    const Slot& each = slots_[rank];
    if (each.state == State::dead || each.state == State::left) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

Status Roster::leave(int rank, wire::Reader& body) {
  const uint64_t last_call = body.u64();
  if (!body.complete()) return breach("a malformed goodbye");
  if (slot(rank).state == State::present) depart(rank, last_call);
  return {};
}

// As it is no failure by itself, others that are to be told of one still are.
Status Roster::end(int rank, wire::Reader& body) {
  if (!body.complete()) return breach("a malformed end");
  if (slot(rank).state != State::present) return {};
  depart(rank, Bootstrap::any_call);
  if (++ends_told_ > max_deaths_told) return {};
  const std::string text = fmt::format("{} is gone: its process ended without leaving the communicator",
                                       describe(slot(rank).member));
  log::info(log::init, -1, "{}", text);
  broadcast(frame_of({Notice::Kind::ended, rank, text}));
  return {};
}

Status Roster::watch(int rank, wire::Reader& body) {
  if (!body.complete()) return breach("a malformed wish to watch");
  slot(rank).watches = true;
  for (const Slot& each : slots_)
    if (each.state == State::left) send_(rank, left_frame(wire::Type::left, each.member, each.last_call));
  return {};
}

void Roster::depart(int rank, uint64_t last_call) {
  Slot& mine = slot(rank);
  mine.state = State::left;
  mine.last_call = last_call;
  --present_;
  ++left_;
  log::trace(log::init, -1, "{} left", describe(mine.member));
  if (!complete_) {
    notify({Notice::Kind::failed, rank, fmt::format("{} left before all had joined", describe(mine.member))},
           rank);
    return;
  }
  const Frame left = left_frame(wire::Type::left, mine.member, last_call);
  for (const Slot& each : slots_)
    if (each.watches && each.state == State::present) send_(each.member.rank, left);
  if (gathering_ > 0 && !first_notice_) {
    notify(
        {Notice::Kind::mismatch, rank,
         fmt::format("{} has left while other ranks are in an allgather or barrier", describe(mine.member))},
        rank);
  }
  if (const auto wrong = calls_.left(mine.member, last_call)) notify({Notice::Kind::mismatch, rank, *wrong});
  answer_lookups_of(rank);
  // Other ranks of the hub's process may be left: while they are, its end is their death.
  if (!holds_hub(mine.member)) return;
  const bool is_last = std::ranges::none_of(
      slots_, [this](const Slot& each) { return each.state == State::present && holds_hub(each.member); });
  broadcast(is_last ? may_close() : *left_frame(wire::Type::hub_left, mine.member, last_call));
}

// From then on ranks find by themselves who waits for one that has left.
wire::Bytes Roster::may_close() const {
  const auto has_left = [](const Slot& each) { return each.state == State::left; };
  wire::Writer frame(wire::Type::may_close);
  frame.u32(static_cast<uint32_t>(std::ranges::count_if(slots_, has_left)));
  for (const Slot& each : slots_)
    if (has_left(each)) put_left(frame, each.member, each.last_call);
  return frame.take();
}

bool Roster::is_of_hub(int rank) const {
  return holds_hub(slots_[static_cast<size_t>(rank)].member);
}

bool Roster::others_are_left() const {
  if (!complete_ || present_ == 0 || first_notice_) return false;
  const auto in_state = [this](State state) {
    return std::ranges::any_of(
        slots_, [&](const Slot& each) { return each.state == state && holds_hub(each.member); });
  };
  return in_state(State::left) && !in_state(State::present);
}

bool Roster::has_left(int rank) const {
  return slots_[static_cast<size_t>(rank)].state == State::left;
}

void Roster::give_up(const std::string& why) {
  if (complete_ || slots_.empty()) return;
  notify({Notice::Kind::failed, -1,
          fmt::format("the rendezvous (host {}, pid {}) cannot let in more than {} of {} ranks: {}",
                      hub_.host, hub_.pid, joined_, ranks(), why)});
}

void Roster::disconnected(int rank, const Status& why) {
  Slot& mine = slot(rank);
  if (mine.state != State::present) return;
  mine.state = State::dead;
  --present_;
  calls_.died(rank);
  if (++deaths_told_ > max_deaths_told) return;
  notify({Notice::Kind::died, rank, fmt::format("{} {}", describe(mine.member), net::fate_of_peer(why)),
          why.reason()});
}

void Roster::close(const std::string& why) {
  if (!why.empty() && present_ > 0) notify({Notice::Kind::failed, -1, why});
  for (const Slot& each : slots_) {
    if (each.state == State::present && holds_hub(each.member))
      disconnected(each.member.rank,
                   {Code::remote_error, "its process ended without leaving the communicator"});
  }
  broadcast(may_close());
}

void Roster::broadcast(wire::Bytes frame, int except) {
  const Frame shared = std::make_shared<const wire::Bytes>(std::move(frame));
  for (size_t rank = 0; rank < slots_.size(); ++rank) {
    if (slots_[rank].state == State::present && static_cast<int>(rank) != except)
      send_(static_cast<int>(rank), shared);
  }
}

void Roster::notify(Notice notice, int except) {
  // Of what is not a death, the first says it all; but see failure() and end().
  if (first_notice_ && notice.kind != Notice::Kind::died) return;
  log::warn(log::init, -1, "{}", notice.text);
  broadcast(frame_of(notice), except);
  if (!first_notice_) first_notice_ = std::move(notice);
}

}  // namespace epccl::runtime
