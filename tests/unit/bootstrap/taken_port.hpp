// A port for tests of what nobody listens to.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/net.hpp"
#include "base/unique_fd.hpp"

namespace epccl::test {

/// A port at which nobody listens, nor anybody else can while it is kept.
class TakenPort {
 public:
  TakenPort() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    endpoint_ = net::resolve("127.0.0.1", ntohs(address.sin_port))->front();
  }
  const net::Endpoint& endpoint() const { return endpoint_; }
  /// From now on somebody does.
  int listens() const {
    EXPECT_EQ(listen(fd_.get(), 8), 0);
    return fd_.get();
  }

 private:
  UniqueFd fd_;
  net::Endpoint endpoint_;
};

}  // namespace epccl::test
