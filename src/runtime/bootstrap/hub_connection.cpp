#include "runtime/bootstrap/hub_connection.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/net.hpp"

namespace epccl::runtime {
namespace {

constexpr size_t fair_share = size_t{1}
                              << 20;  // bytes read from one connection before the next gets its turn
constexpr size_t max_unsent = 2 * wire::max_gathered;  // a rank that reads nothing for so long is not alive

}  // namespace

bool HubConnection::receive() {
  std::array<std::byte, 16384> chunk;
  size_t total = 0;
  while (total < fair_share) {
    const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), 0);
    if (got > 0) {
      splitter_.append(std::span(chunk).first(static_cast<size_t>(got)));
      total += static_cast<size_t>(got);
      // A stranger gets no more memory than one read.
      if (phase != Phase::member) return true;
      continue;
    }
    if (got == 0) {
      end_reason_ = {Code::remote_error, "its connection closed"};
      return false;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
    end_reason_ = net::why_ended(errno);
    return false;
  }
  return true;
}

Result<std::optional<wire::Frame>> HubConnection::next() {
  return splitter_.next(phase == Phase::member ? wire::max_frame_of_rank : wire::max_frame_of_stranger);
}

void HubConnection::enqueue(Roster::Frame frame) {
  unsent_bytes_ += frame->size();
  unsent_.push_back(std::move(frame));
}

bool HubConnection::flush() {
  while (!unsent_.empty()) {
    const wire::Bytes& first = *unsent_.front();
    const ssize_t sent =
        send(fd_.get(), first.data() + sent_of_first_, first.size() - sent_of_first_, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (sent < 0) {
      end_reason_ = net::why_ended(errno);
      return false;
    }
    sent_of_first_ += static_cast<size_t>(sent);
    if (sent_of_first_ < first.size()) continue;
    unsent_bytes_ -= first.size();
    sent_of_first_ = 0;
    unsent_.pop_front();
  }
  if (unsent_bytes_ > max_unsent) {
    end_reason_ = error(Code::remote_error, "it left {} bytes unread", unsent_bytes_);
    return false;
  }
  return true;
}

}  // namespace epccl::runtime
