#include "runtime/bootstrap/client.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/caught.hpp"
#include "base/clock.hpp"
#include "base/log.hpp"
#include "base/net.hpp"
#include "runtime/bootstrap/overdue.hpp"
#include "runtime/bootstrap/process_hubs.hpp"

namespace epccl::runtime {
namespace {

constexpr double report_patience = 0.2;  // seconds that a report may block its caller
constexpr double seconds_to_leave = 1;
constexpr double seconds_to_leave_own =
    5;  // the hub of the own process, which tells the others what ends with it
constexpr double check_period = 0.02;

}  // namespace

Client::~Client() {
  forget_line(*this);
  const std::scoped_lock locks(reading_, writing_);
  line_.reset();
}

Result<wire::Bytes> Client::gather(wire::GatherKind kind, std::span<const std::byte> mine) {
  const std::lock_guard lock(reading_);
  const char* name = kind == wire::GatherKind::barrier ? "barrier" : "allgather";
  if (mine.size() > wire::max_frame_of_rank - 64)
    return error(Code::invalid_argument, "allgather of a blob of {} bytes; the limit is {}", mine.size(),
                 wire::max_frame_of_rank - 64);
  gathered_.reset();
  const uint32_t number = ++gathers_;
  queue(wire::Writer(wire::Type::gather).u32(number).u8(static_cast<uint8_t>(kind)).blob(mine).take());
  bool timed_out = false;
  const auto missing = [&](double patience) {
    const Answer answer = ask(patience);
    return answer.missing.empty() ? "unknown" : answer.missing;
  };
  Status status = pump_aloud(
      now_seconds() + timeout_, [&] { return gathered_.has_value(); }, timed_out,
      [&] {
        return fmt::format("{} #{} incomplete; missing ranks: {}", name, number, missing(brief_patience));
      });
  if (timed_out)
    return error(Code::remote_error, Reason::timeout,
                 "rank {}: {} #{} incomplete after {} s; missing ranks: {}", rank_, name, number, timeout_,
                 missing(question_patience));
  if (!status.ok()) return std::move(status).with_context(fmt::format("{} #{}", name, number));
  return *std::exchange(gathered_, std::nullopt);
}

Result<std::vector<Blob>> Client::allgather(std::span<const std::byte> mine) {
  EPCCL_ASSIGN(const wire::Bytes all, gather(wire::GatherKind::allgather, mine));
  wire::Reader body(all);
  body.u32();
  std::vector<Blob> blobs;
  if (body.u32() == static_cast<uint32_t>(ranks_)) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto blob = body.blob();
      blobs.emplace_back(blob.begin(), blob.end());
    }
  }
  if (!body.complete() || blobs.empty())
    return error(Code::remote_error, "rank {}: a malformed allgather result from the rendezvous", rank_);
  return blobs;
}

Status Client::barrier() {
  auto done = gather(wire::GatherKind::barrier, {});
  return done.ok() ? Status() : std::move(done).take_status();
}

Status Client::publish(const std::string& key, std::span<const std::byte> blob) {
  if (blob.size() > wire::max_frame_of_rank - 512 || key.size() > 256)
    return error(Code::invalid_argument, "publishing {} bytes under a key of {}: too much", blob.size(),
                 key.size());
  queue(wire::Writer(wire::Type::publish).text(key).blob(blob).take());
  flush_until(now_seconds() + timeout_);
  return {};
}

Result<Blob> Client::lookup(int rank, const std::string& key) {
  const std::lock_guard lock(reading_);
  if (rank < 0 || rank >= ranks_)
    return error(Code::invalid_argument, "look-up at rank {} of {}", rank, ranks_);
  const uint32_t request = ++requests_;
  queue(wire::Writer(wire::Type::lookup).u32(request).i32(rank).text(key).take());
  bool timed_out = false;
  Status status = pump(
      now_seconds() + timeout_, [&] { return found_.contains(request); }, timed_out);
  if (timed_out)
    return error(Code::remote_error, Reason::timeout, "rank {}: rank {} published no \"{}\" within {} s",
                 rank_, rank, key, timeout_);
  if (!status.ok())
    return std::move(status).with_context(fmt::format("look-up of \"{}\" of rank {}", key, rank));
  Found found = std::move(found_.extract(request).mapped());
  if (found.success) return std::move(found.blob);
  return error(Code::remote_error, "rank {}: {}", rank_,
               std::string_view(reinterpret_cast<const char*>(found.blob.data()), found.blob.size()));
}

std::optional<Notice> Client::poll_notice() {
  flush();
  // Whoever else is reading sees the notice, and fails with it.
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  if (notices_.empty()) read_line();
  std::optional<Notice> notice;
  if (!notices_.empty()) {
    notice = std::move(notices_.front());
    notices_.pop_front();
  }
  eventfd_t drained = 0;
  if (notices_.empty()) eventfd_read(notice_event_.get(), &drained);
  return notice;
}

void Client::send_failure(const Status& why) {
  queue(wire::Writer(wire::Type::failure).reason(why.reason()).text(why.message()).take());
  flush_until(now_seconds() + report_patience);
}

void Client::report_failure(const Status& why) {
  send_failure(why);
  if (!lives_with_hub_) return;
  // The rendezvous may end with this process: an answer to what is asked behind the report says that the others have the news.
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (lock.owns_lock()) static_cast<void>(ask(report_patience));
}

void Client::report_stall(const StallReport& report) {
  wire::Writer frame(wire::Type::stall);
  frame.u64(report.sequence).text(report.call).text(report.waiting);
  queue(frame.ranks(report.peers).take());
  flush();
  // Where the hub has ended in order nobody compares, but this rank knows who had left.
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock.owns_lock()) return;
  read_line();
  if (state_ != Line::closed_regularly || left_ || first_notice_) return;
  if (const auto wrong = calls_.waits({rank_, getpid(), this_host(), 0}, report))
    add_notice({Notice::Kind::mismatch, rank_, *wrong});
}

uint32_t Client::announce_shrink(std::span<const int> excluded) {
  uint32_t number = 0;
  {
    const std::lock_guard lock(writing_);
    number = shrinks_++;
    wire::Writer frame(wire::Type::shrink);
    frame.u32(number).u32(static_cast<uint32_t>(excluded.size()));
    for (const int rank : excluded) frame.i32(rank);
    const wire::Bytes bytes = frame.take();
    unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  }
  flush();
  return number;
}

std::optional<ShrinkVerdict> Client::shrink_verdict(uint32_t number, bool ask) {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;  // whoever reads keeps it for the next time
  flush();
  read_line();
  if (ask && !verdicts_.contains(number)) {
    queue(wire::Writer(wire::Type::shrink_over).u32(number).take());
    hear_all(question_patience);
  }
  const auto known = verdicts_.find(number);
  return known == verdicts_.end() ? std::nullopt : std::optional(known->second);
}

std::string Client::who_left(std::span<const int> ranks) {
  const std::unique_lock lock(reading_, std::try_to_lock);
  if (!lock.owns_lock()) return "";  // whoever reads keeps it for the next time
  if (!std::exchange(watches_, true)) queue(wire::Writer(wire::Type::watch).take());
  flush();
  read_line();
  return calls_.left_of(ranks);
}

bool Client::is_alone() {
  const std::unique_lock lock(reading_, std::try_to_lock);
  return lock.owns_lock() && state_ == Line::closed_regularly;
}

// Destructors do this. Without memory for a goodbye the line just closes.
void Client::leave(uint64_t last_call) noexcept {
  const std::unique_lock lock(reading_, std::try_to_lock);
  go_through([&] {
    if (lock.owns_lock()) return hang_up(last_call);
    queue(wire::Writer(wire::Type::leave).u64(last_call).take());
    flush_until(now_seconds() + seconds_to_leave);
  });
}

void Client::hang_up(uint64_t last_call) {
  if (left_ || state_ != Line::open) return;
  left_ = true;
  queue(wire::Writer(wire::Type::leave).u64(last_call).take());
  // The hub hangs up when it has read the goodbye; closing earlier could overtake it.
  bool timed_out = false;
  static_cast<void>(pump(
      now_seconds() + (lives_with_hub_ ? seconds_to_leave_own : seconds_to_leave),
      [&] { return state_ != Line::open; }, timed_out, false));
}

void Client::tell_end() {
  // A program may exit in a handler of a signal, which came while this very thread wrote: nothing is told then, nor awaited.
  if (const std::unique_lock lock(writing_, std::try_to_lock); !lock.owns_lock()) return;
  {
    const std::unique_lock lock(reading_, std::try_to_lock);
    if (lock.owns_lock()) {
      if (left_ || state_ != Line::open) return;
      left_ = has_ended_ = true;
    }
  }
  queue(wire::Writer(wire::Type::end).take());
  flush();
}

// A thread that blocks in a call reads for itself.
void Client::await_end(double deadline) {
  const std::unique_lock lock(reading_, std::try_to_lock);
  bool timed_out = false;
  if (lock.owns_lock() && has_ended_)
    static_cast<void>(pump(
        deadline, [&] { return state_ != Line::open; }, timed_out, false));
}

/// Reads and sends until `done`, a notice, the end of the line, or the deadline.
Status Client::pump(double deadline, const std::function<bool()>& done, bool& timed_out, bool interruptible) {
  timed_out = false;
  for (;;) {
    read_line();
    if (done()) return {};
    if (interruptible && interrupted()) return interruption();
    if (first_notice_ && !left_) return {Code::remote_error, first_notice_->reason, first_notice_->text};
    if (state_ != Line::open)
      return error(Code::remote_error, "the process of the rendezvous ({}) has ended", hub_);
    const short events = flush() ? POLLIN : POLLIN | POLLOUT;
    const int also = interruptible && options_.interrupt != nullptr ? options_.interrupt->fd() : -1;
    const bool checks = interruptible && options_.check != nullptr;
    const double until = checks ? std::min(deadline, now_seconds() + check_period) : deadline;
    if (!net::wait_for(line_.get(), events, until, also)) {
      if (checks) EPCCL_TRY(options_.check(false));
      if (now_seconds() < deadline) continue;
      timed_out = true;
      return {Code::remote_error, Reason::timeout, "timed out"};
    }
  }
}

Status Client::pump_aloud(double deadline, const std::function<bool()>& done, bool& timed_out,
                          const std::function<std::string()>& missing) {
  Overdue overdue(rank_, timeout_);
  for (;;) {
    Status status = pump(std::min(deadline, overdue.next()), done, timed_out);
    if (!timed_out || now_seconds() >= deadline) return status;
    overdue.look(missing);
  }
}

void Client::read_line() {
  std::array<std::byte, 8192> chunk;  // on the stack, which may be a small one
  while (state_ == Line::open) {
    const ssize_t got = recv(line_.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    const Status why = got > 0    ? Status{}
                       : got == 0 ? Status(Code::remote_error, "its connection closed")
                                  : net::why_ended(errno);
    if (got > 0) splitter_.append(std::span(chunk).first(static_cast<size_t>(got)));
    for (;;) {
      auto next = splitter_.next(wire::max_gathered + 64 + 4 * static_cast<size_t>(ranks_));
      if (!next.ok()) {
        line_ended(std::move(next).take_status().with_context("it sent rubbish"));
        return;
      }
      if (!next->has_value()) break;
      handle(**next);
    }
    if (got <= 0) line_ended(why);
  }
}

void Client::handle(const wire::Frame& frame) {
  wire::Reader body(frame.body);
  switch (frame.type) {
    case wire::Type::challenge:
      challenge_ = frame.body;
      return;
    case wire::Type::refused:
      refused_ = body.text();
      return;
    case wire::Type::joined:
      return have_joined(body);
    case wire::Type::hub_left:
      std::erase(hub_ranks_, take_left(body));
      return;
    case wire::Type::left:
      take_left(body);
      return;
    case wire::Type::gathered:
      gathered_ = frame.body;
      return;
    case wire::Type::found:
      return take_found(body);
    case wire::Type::answer:
      return take_answer(body);
    case wire::Type::notice:
      return take_notice(body);
    case wire::Type::may_close:
      hub_may_close_ = true;
      for (uint32_t left = body.u32(); left > 0 && left <= static_cast<uint32_t>(ranks_); --left)
        take_left(body);
      return;
    case wire::Type::verdict:
      return take_verdict(body);
    default:
      return;  // a newer hub may say more
  }
}

std::vector<int> Client::ranks_in(wire::Reader& body) const {
  std::vector<int> ranks;
  for (uint32_t left = body.u32(); left > 0 && left <= static_cast<uint32_t>(ranks_); --left)
    ranks.push_back(body.i32());
  return ranks;
}

void Client::have_joined(wire::Reader& body) {
  joined_ = true;
  hub_ = fmt::format("{} at {}", body.text(), hub_);
  hub_ranks_ = ranks_in(body);
  lives_with_hub_ = std::ranges::find(hub_ranks_, rank_) != hub_ranks_.end();
}

void Client::take_found(wire::Reader& body) {
  const uint32_t request = body.u32();
  const bool success = body.u8() != 0;
  const auto blob = body.blob();
  found_[request] = {success, Blob(blob.begin(), blob.end())};
}

void Client::take_notice(wire::Reader& body) {
  Notice notice;
  notice.kind =
      static_cast<Notice::Kind>(std::min<uint8_t>(body.u8(), static_cast<uint8_t>(Notice::Kind::hub_lost)));
  notice.rank = body.i32();
  notice.reason = body.reason();
  notice.text = body.text();
  add_notice(std::move(notice));
}

void Client::take_verdict(wire::Reader& body) {
  ShrinkVerdict& verdict = verdicts_[body.u32()];
  verdict.text = body.text();
  verdict.kept = ranks_in(body);
}

int Client::take_left(wire::Reader& body) {
  Member who;
  who.rank = body.i32();
  who.pid = body.i32();
  who.host = body.text();
  static_cast<void>(calls_.left(who, body.u64()));
  return who.rank;
}

void Client::line_ended(const Status& why) {
  state_ = hub_may_close_ || left_ ? Line::closed_regularly : Line::broken;
  // The descriptor stays, so that nothing else gets its number, but it must not keep fd() readable.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, line_.get(), nullptr);
  if (state_ == Line::closed_regularly || refused_) return;
  const std::string fate = net::fate_of_peer(why);
  if (hub_ranks_.empty()) {
    add_notice({Notice::Kind::hub_lost, -1, fmt::format("the process of the rendezvous ({}) {}", hub_, fate),
                why.reason()});
    return;
  }
  Notice::Kind kind = Notice::Kind::hub_lost;  // the first stands for the rendezvous, too
  for (const int rank : hub_ranks_) {
    add_notice({kind, rank, fmt::format("rank {}, which holds the rendezvous ({}), {}", rank, hub_, fate),
                why.reason()});
    kind = Notice::Kind::died;
  }
}

void Client::add_notice(Notice notice) {
  log::info(log::init, rank_, "notice: {}", notice.text);
  // What needs the rank that ended the hub answers so.
  if (!first_notice_ && notice.kind != Notice::Kind::ended) first_notice_ = notice;
  notices_.push_back(std::move(notice));
  eventfd_write(notice_event_.get(), 1);
}

void Client::queue(wire::Bytes frame) {
  const std::lock_guard lock(writing_);
  unsent_.insert(unsent_.end(), frame.begin(), frame.end());
}

bool Client::flush() {
  const std::lock_guard lock(writing_);
  while (sent_ < unsent_.size()) {
    const ssize_t sent = send(line_.get(), unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (sent < 0) break;  // the reader finds out why
    sent_ += static_cast<size_t>(sent);
  }
  unsent_.clear();
  sent_ = 0;
  return true;
}

bool Client::flush_until(double deadline) {
  while (!flush()) {
    if (!net::wait_for(line_.get(), POLLOUT, deadline)) return false;
  }
  return true;
}

}  // namespace epccl::runtime
