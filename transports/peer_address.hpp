// The address of a rank whose transport listens on a TCP port.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/net.hpp"
#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::transports {

using Cookie = std::array<uint8_t, 16>;

/// What a rank publishes: where it listens, and what a peer must show to be let in. The bootstrap hands it only to ranks
/// of the same job.
struct PeerAddress {
  net::Endpoint endpoint;
  Cookie cookie{};

  /// Listens at `at`, where a port of 0 lets the system choose, with a cookie that nobody can guess.
  Result<UniqueFd> listen(const net::Endpoint& at) {
    endpoint = at;
    EPCCL_ASSIGN(UniqueFd listener, net::listen_at(endpoint));
    if (getrandom(cookie.data(), cookie.size(), 0) != static_cast<ssize_t>(cookie.size()))
      return system_error(errno, "making a random cookie");
    return listener;
  }

  std::vector<std::byte> encode() const {
    std::vector<std::byte> blob(sizeof *this);
    std::memcpy(blob.data(), this, sizeof *this);
    return blob;
  }
  static Result<PeerAddress> decode(const std::vector<std::byte>& blob) {
    PeerAddress address;
    if (blob.size() != sizeof address)
      return error(Code::remote_error, "its address has {} bytes, not {}", blob.size(), sizeof address);
    std::memcpy(&address, blob.data(), sizeof address);
    return address;
  }
};

}  // namespace epccl::transports
