#include "transports/tcp/message_stream.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>

#include "base/net.hpp"

namespace epccl::transports::tcp {
namespace {

// Of one pump(): other peers, and other ranks that share the core, get their turn.
constexpr size_t read_share = 512 << 10;
constexpr size_t messages_per_write = 16;

// What is read behind the end of a message is copied once more. That is cheap where small messages come, many with one system
// call, and not where another large one does: then little more than its header is read with the one before.
constexpr size_t large_message = 32 << 10, read_before_large = 1 << 10;

// What a program may ask for as SO_SNDBUF; 0: nobody says.
int most_send_buffer() {
  static const int most = [] {
    int bytes = 0;
    std::ifstream("/proc/sys/net/core/wmem_max") >> bytes;
    return bytes;
  }();
  return most;
}

// More than a process can have memory.
constexpr uint64_t longest_message = uint64_t{1} << 47;

// What this process did (its buffer is gone), or the peer's end, or the way to it.
Status read_failure(int cause) {
  Status why = system_error(cause, "connection lost");
  const bool is_own = cause == EFAULT || cause == ENOMEM || cause == EINVAL || cause == EIO;
  return is_own ? why : Status(Code::remote_error, why.message());
}

}  // namespace

void MessageStream::attach(UniqueFd socket) {
  socket_ = std::move(socket);
  may_read_ = may_write_ = true;
}

bool MessageStream::has_work() const {
  if (!attached()) return false;
  return (may_read_ && !paused()) || (may_write_ && !outgoing_.empty());
}

size_t MessageStream::pending() const {
  if (!failure_.ok()) return pending_at_failure_;
  return outgoing_.size() + posted_.size() + (incoming_.completion != nullptr ? 1 : 0);
}

bool MessageStream::pump() {
  bool moved = false;
  if (attached() && may_write_ && !outgoing_.empty()) moved |= write_some();
  if (attached() && may_read_ && !paused()) moved |= read_some();
  return moved;
}

// Every segment that arrives would wake a sleeping rank; what has begun to arrive comes whole without its help.
void MessageStream::set_low_water(bool on) {
  constexpr size_t most = 256 << 10;
  const bool arriving = on && attached() && incoming_.active && !paused();
  change_low_water(arriving ? std::clamp<size_t>(incoming_.missing(), 1, most) : 1);
}

void MessageStream::change_low_water(size_t bytes) {
  if (bytes == low_water_ || !attached()) return;
  low_water_ = bytes;
  const int wanted = static_cast<int>(bytes);
  setsockopt(socket_.get(), SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof wanted);
}

// ---- sending ------------------------------------------------------------------------------------------------------------

void MessageStream::send(MessageKey key, const void* data, size_t bytes, Completion& completion) {
  completion.state = Completion::State::pending;
  completion.bytes = 0;
  if (!failure_.ok() || departed()) return fail(completion, describe(true, bytes));
  ++counters_.messages_sent;
  counters_.bytes_sent += bytes;
  outgoing_.push_back({{key, bytes, carried_.taken}, static_cast<const std::byte*>(data), 0, &completion});
  if (attached() && may_write_ && outgoing_.size() == 1) write_some();
}

bool MessageStream::write_some() {
  bool moved = false;
  while (!outgoing_.empty() && may_write_) {
    std::array<iovec, 2 * messages_per_write> pieces;
    size_t count = 0, total = 0;
    for (size_t i = 0; i < std::min(outgoing_.size(), messages_per_write); ++i) {
      Outgoing& message = outgoing_[i];
      const size_t header_left = sizeof(Header) - std::min(message.written, sizeof(Header));
      if (header_left > 0)
        pieces[count++] = {reinterpret_cast<std::byte*>(&message.header) + sizeof(Header) - header_left,
                           header_left};
      const size_t data_written = message.written - (sizeof(Header) - header_left),
                   data_left = message.header.bytes - data_written;
      // sendmsg only reads; iovec has no const.
      if (data_left > 0) pieces[count++] = {const_cast<std::byte*>(message.data) + data_written, data_left};
      total += header_left + data_left;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      may_write_ = false;
      if (errno == EAGAIN) return moved;
      // A peer that is gone may have left messages that are still to be read: reading finds the end.
      write_error_ = errno;  // the kernel tells it once: a read finds nothing but the end
      hung_up();
      return moved;
    }
    moved = true;
    // Less than all: the socket is full, and tells when it has room again.
    if (static_cast<size_t>(sent) < total) may_write_ = false;
    written(static_cast<size_t>(sent));
  }
  return moved;
}

void MessageStream::written(size_t bytes) {
  while (bytes > 0) {
    Outgoing& message = outgoing_.front();
    const size_t left = sizeof(Header) + message.header.bytes - message.written;
    message.written += std::min(bytes, left);
    if (bytes < left) return;
    bytes -= left;
    message.completion->bytes = message.header.bytes;
    message.completion->finish(Completion::State::done);
    outgoing_.pop_front();
  }
}

// ---- receiving ----------------------------------------------------------------------------------------------------------

void MessageStream::recv(MessageKey key, void* data, size_t bytes, Completion& completion) {
  completion.state = Completion::State::pending;
  completion.bytes = 0;
  completion.found.reset();
  const Posted posted{key, static_cast<std::byte*>(data), bytes, &completion};
  if (const auto other = of_another_call(key)) return refuse(posted, *other);
  const auto early =
      std::find_if(early_.begin(), early_.end(), [key](const Early& message) { return message.key == key; });
  if (early != early_.end()) {
    take_kept(posted, *early);
    early_.erase(early);
  } else if (!failure_.ok()) {
    fail(completion, describe(false, bytes));
  } else if (incoming_.active && incoming_.early != nullptr && incoming_.header.key == key) {
    take_early(posted);
  } else {
    posted_.push_back(posted);
  }
}

/// What lies before all messages of the receive's call: one that this rank does not know of, or of a call that it has not come to, while the
/// peer is through with this one.
std::optional<MessageKey> MessageStream::of_another_call(MessageKey wanted) const {
  if ((wanted & of_no_call) != 0) return std::nullopt;
  const auto is_of_a_call = [](MessageKey key) { return (key & of_no_call) == 0; };
  MessageKey first = wanted;
  const auto kept = std::ranges::find_if(early_, is_of_a_call, &Early::key);
  if (kept != early_.end())
    first = kept->key;
  else if (incoming_.active && incoming_.early != nullptr && is_of_a_call(incoming_.header.key))
    first = incoming_.header.key;
  if (!of_different_calls(first, wanted)) return std::nullopt;
  return first;
}

void MessageStream::refuse(const Posted& posted, MessageKey found) {
  posted.completion->found = found;
  fail(*posted.completion,
       error(Code::invalid_usage,
             "what rank {} sent is of another call than rank {} receives in: they make different calls",
             peer_, self_));
}

void MessageStream::refuse_posted(MessageKey found) {
  const auto refused = std::stable_partition(posted_.begin(), posted_.end(), [found](const Posted& posted) {
    return !of_different_calls(posted.key, found);
  });
  for (auto posted = refused; posted != posted_.end(); ++posted) refuse(*posted, found);
  posted_.erase(refused, posted_.end());
}

void MessageStream::take_kept(const Posted& posted, const Early& message) {
  if (fits(posted, message.bytes)) {
    if (message.bytes > 0) std::memcpy(posted.data, message.data.get(), message.bytes);
    deliver(posted, message.bytes);
  }
  if (message.carried)
    carried_.taken += Lanes::framed(message.bytes);
  else
    early_bytes_ -= message.bytes;
}

void MessageStream::arrive(MessageKey key, std::span<const std::byte> data, uint64_t taken) {
  carried_.arrived += Lanes::framed(data.size());
  carried_.acknowledged = std::max(carried_.acknowledged, std::min(taken, carried_.sent));
  const auto posted =
      std::find_if(posted_.begin(), posted_.end(), [key](const Posted& other) { return other.key == key; });
  if (posted == posted_.end()) {
    Early message{key, data.size(), std::make_unique_for_overwrite<std::byte[]>(data.size()), true};
    std::ranges::copy(data, message.data.get());
    early_.push_back(std::move(message));
  } else {
    if (fits(*posted, data.size())) {
      std::ranges::copy(data, posted->data);
      deliver(*posted, data.size());
    }
    posted_.erase(posted);
    carried_.taken += Lanes::framed(data.size());
  }
  ++counters_.messages_by_lane;
  if (departed() && carried_.arrived >= carried_.announced) fail(departure_);
}

/// The receive for the message that is just arriving: what is here moves over, the rest goes straight to its place.
void MessageStream::take_early(const Posted& posted) {
  early_bytes_ -= incoming_.header.bytes;
  incoming_.target = nullptr;
  if (fits(posted, incoming_.header.bytes)) {
    std::memcpy(posted.data, incoming_.early.get(), incoming_.received);
    incoming_.target = posted.data;
    incoming_.completion = posted.completion;
  }
  incoming_.early.reset();
}

bool MessageStream::read_some() {
  size_t total = 0;
  while (total < read_share && !paused()) {
    std::array<iovec, 2> pieces;
    size_t count = 0;
    const size_t ahead = expects_large() ? std::min(read_before_large, staging_.size()) : staging_.size();
    const bool direct = incoming_.active && incoming_.target != nullptr;
    const size_t direct_bytes = direct ? incoming_.missing() : 0;
    if (direct) pieces[count++] = {incoming_.target + incoming_.received, direct_bytes};
    pieces[count++] = {staging_.data(), ahead};
    const ssize_t got = ::readv(socket_.get(), pieces.data(), static_cast<int>(count));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      may_read_ = hung_up_ = false;
      break;
    }
    if (got <= 0) {
      lost(got < 0 ? read_failure(errno) : ended());
      return true;
    }
    const auto bytes = static_cast<size_t>(got), here = std::min(bytes, direct_bytes);
    total += bytes;
    incoming_.received += here;
    if (direct && incoming_.missing() == 0) end_message();
    consume(staging_.data(), bytes - here);
    if (!failure_.ok()) return true;
    // Less than there was room for: the socket is empty, and tells when more comes. Its end it tells only once.
    if (bytes < direct_bytes + ahead && !hung_up_) {
      may_read_ = false;
      break;
    }
  }
  // What comes next may be less than what this message was waited for with, and who reads it need not arm() before.
  if (low_water_ > 1 && (!incoming_.active || incoming_.missing() < low_water_)) change_low_water(1);
  return total > 0;
}

/// What a read that finds the end means.
Status MessageStream::ended() const {
  if (write_error_ == 0 || write_error_ == EPIPE || write_error_ == ECONNRESET)
    return {Code::remote_error, "it closed the connection"};
  return error(Code::remote_error, "connection lost: {} (errno {})", text_of_error(write_error_),
               write_error_);
}

/// Receives are posted in the order in which their messages come, as a rule.
bool MessageStream::expects_large() const {
  return !posted_.empty() && posted_.front().capacity >= large_message;
}

void MessageStream::consume(const std::byte* data, size_t bytes) {
  while (bytes > 0) {
    size_t used = 0;
    if (!incoming_.active) {
      used = std::min(bytes, sizeof(Header) - header_filled_);
      std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_filled_, data, used);
      header_filled_ += used;
      if (header_filled_ == sizeof(Header)) begin_message();
      if (!failure_.ok()) return;
    } else {
      used = std::min(bytes, incoming_.missing());
      if (incoming_.target != nullptr) std::memcpy(incoming_.target + incoming_.received, data, used);
      incoming_.received += used;
      if (incoming_.missing() == 0) end_message();
    }
    data += used;
    bytes -= used;
  }
}

void MessageStream::begin_message() {
  header_filled_ = 0;
  incoming_ = {};
  carried_.acknowledged = std::max(carried_.acknowledged, std::min(header_.taken, carried_.sent));
  if (header_.key == farewell) {
    carried_.announced = header_.bytes;
    return;
  }
  if (header_.key >> message_key_bits != 0 || header_.bytes > longest_message)
    return fail(error(Code::remote_error, "it sent what is no message: key {:#x}, {} bytes", header_.key,
                      header_.bytes));
  incoming_.active = true;
  incoming_.header = header_;
  const size_t bytes = header_.bytes;
  const auto posted = std::find_if(posted_.begin(), posted_.end(),
                                   [this](const Posted& other) { return other.key == header_.key; });
  if (posted == posted_.end()) {
    refuse_posted(header_.key);
    // One byte at least: that it is there says that the message is early.
    incoming_.early.reset(new (std::nothrow) std::byte[std::max<size_t>(bytes, 1)]);
    if (incoming_.early == nullptr) {
      incoming_ = {};
      return fail(error(Code::remote_error,
                        "it sent {} bytes that nobody has asked for yet: no memory for them", bytes));
    }
    incoming_.target = incoming_.early.get();
    early_bytes_ += bytes;
  } else {
    if (fits(*posted, bytes)) {
      incoming_.target = posted->data;
      incoming_.completion = posted->completion;
    }
    posted_.erase(posted);
  }
  if (bytes == 0) end_message();
}

void MessageStream::end_message() {
  incoming_.active = false;
  if (incoming_.early != nullptr) {
    early_.push_back({incoming_.header.key, incoming_.header.bytes, std::move(incoming_.early), false});
  } else if (incoming_.completion != nullptr) {
    deliver({incoming_.header.key, nullptr, 0, incoming_.completion}, incoming_.header.bytes);
    incoming_.completion = nullptr;
  }
}

void MessageStream::deliver(const Posted& posted, size_t bytes) {
  ++counters_.messages_received;
  counters_.bytes_received += bytes;
  posted.completion->bytes = bytes;
  posted.completion->finish(Completion::State::done);
}

bool MessageStream::fits(const Posted& posted, size_t bytes) const {
  if (bytes <= posted.capacity) return true;
  fail(*posted.completion,
       error(Code::invalid_usage, "rank {} sent {} bytes where rank {} receives at most {}", peer_, bytes,
             self_, posted.capacity));
  return false;
}

// ---- the end ------------------------------------------------------------------------------------------------------------

Status MessageStream::describe(bool sending, size_t bytes) const {
  const Status& cause = failure_.ok() ? departure_ : failure_;
  return error(cause.code(), "{} {} bytes {} rank {}: {}", sending ? "sending" : "receiving", bytes,
               sending ? "to" : "from", peer_, cause.message());
}

void MessageStream::fail(Completion& completion, Status status) {
  completion.status = std::move(status);
  completion.finish(Completion::State::failed);
}

/// The connection is at its end, but the peer's messages need not be.
void MessageStream::lost(Status why) {
  if (carried_.arrived >= carried_.announced || incoming_.active) return fail(std::move(why));
  departure_ = std::move(why);
  socket_.reset();
  for (const Outgoing& message : outgoing_) fail(*message.completion, describe(true, message.header.bytes));
  outgoing_.clear();
}

void MessageStream::fail(Status why) {
  if (!failure_.ok()) return;
  pending_at_failure_ = pending();
  failure_ = std::move(why);
  socket_.reset();
  for (const Outgoing& message : outgoing_) fail(*message.completion, describe(true, message.header.bytes));
  if (incoming_.completion != nullptr) fail(*incoming_.completion, describe(false, incoming_.header.bytes));
  for (const Posted& posted : posted_) fail(*posted.completion, describe(false, posted.capacity));
  outgoing_.clear();
  posted_.clear();
  if (incoming_.active && incoming_.early != nullptr) early_bytes_ -= incoming_.header.bytes;
  incoming_ = {};
}

/// The peer reads in its calls only, which may come late: where the socket is full it is given room for these few bytes, if the system lets it.
void MessageStream::say_farewell(double deadline) {
  int buffer = 0;
  socklen_t length = sizeof buffer;
  getsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &buffer, &length);
  // Set to what it is it has twice as much, but never more than twice the system's limit, which may be less.
  if (buffer <= most_send_buffer()) setsockopt(socket_.get(), SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  const Header last{farewell, carried_.sent, carried_.taken};
  auto left = std::as_bytes(std::span(&last, 1));
  while (!left.empty()) {
    const ssize_t sent = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) left = left.subspan(static_cast<size_t>(sent));
    if (sent > 0 || errno == EINTR) continue;
    const bool is_full = errno == EAGAIN || errno == EWOULDBLOCK;
    if (!is_full || !net::wait_for(socket_.get(), POLLOUT, deadline)) return;
  }
}

void MessageStream::close(double deadline) {
  if (!attached()) return;
  if (carried_.sent > 0 && outgoing_.empty()) say_farewell(deadline);
  ::shutdown(socket_.get(), SHUT_WR);
  // Closing on unread data would reset the connection, and take what the peer has not read yet with it.
  while (::recv(socket_.get(), staging_.data(), staging_.size(), MSG_DONTWAIT) > 0) {
  }
}

}  // namespace epccl::transports::tcp
