#include "output.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "base/file_size.hpp"

namespace epccl::launcher {
namespace {

constexpr size_t longest_line = size_t{1} << 20;  // what is longer is cut into lines
constexpr int fair_share = 16;                    // reads before another stream gets its turn

/// All of it; waits where the target is non-blocking and full. False when it cannot be written.
bool write_all(int fd, std::string_view text) {
  const NoFileSizeSignal none;
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      pollfd entry{fd, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace

LineForwarder::LineForwarder(UniqueFd source, int target, int rank)
    : source_(std::move(source)), target_(target), prefix_(fmt::format("[{}] ", rank)) {}

bool LineForwarder::forward() {
  std::array<char, 65536> chunk;
  for (int reads = 0; reads < fair_share; ++reads) {
    const ssize_t got = ::read(source_.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      write_lines(true);
      return false;
    }
    pending_.append(chunk.data(), static_cast<size_t>(got));
    if (!write_lines(false)) return false;
  }
  return true;
}

void LineForwarder::finish() {
  if (forward()) write_lines(true);
}

bool LineForwarder::write_lines(bool unfinished_too) {
  std::string out;
  size_t begin = 0;
  for (size_t end = pending_.find('\n'); end != std::string::npos; end = pending_.find('\n', begin)) {
    out.append(prefix_).append(pending_, begin, end + 1 - begin);
    begin = end + 1;
  }
  pending_.erase(0, begin);
  if (!pending_.empty() && (unfinished_too || pending_.size() > longest_line)) {
    out.append(prefix_).append(pending_).push_back('\n');
    pending_.clear();
  }
  if (write_all(target_, out)) return true;
  if (errno != EPIPE) error_ = errno;
  return false;
}

}  // namespace epccl::launcher
