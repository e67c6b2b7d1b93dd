// Names of the sockets that a node's ranks have for each other.
#pragma once

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace epccl::transports {

struct NodeSocket {
  sockaddr_un address{};
  socklen_t length = 0;

  /// That of the rank at `local`; `suffix` tells its sockets apart.
  NodeSocket(const std::array<uint8_t, 16>& token, int local, const char* suffix = "") {
    address.sun_family = AF_UNIX;
    // An abstract name (it starts with a zero byte): nothing in the file system, gone with the socket.
    std::string name = "epccl-";
    for (const uint8_t byte : token) name += fmt::format("{:02x}", byte);
    name += fmt::format("-{}{}", local, suffix);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

}  // namespace epccl::transports
