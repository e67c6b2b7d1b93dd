// The transports that the message tests hold to one contract.
#pragma once

#include <memory>
#include <utility>

#include "base/net.hpp"
#include "transports/tcp/tcp_transport.hpp"
#ifdef EPCCL_WITH_UCX
#include "transports/ucx/ucx_transport.hpp"
#endif

namespace epccl::transports {

struct Tcp {
  using Transport = TcpTransport;
  static constexpr const char* name = "tcp";
  static constexpr bool reaches_itself = false;
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    EPCCL_ASSIGN(const net::Endpoint loopback, net::local_address("lo"));
    return TcpTransport::create(rank, ranks, loopback, std::move(lookup));
  }
};

#ifdef EPCCL_WITH_UCX
struct Ucx {
  using Transport = UcxTransport;
  static constexpr const char* name = "ucx";
  static constexpr bool reaches_itself = true;
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    // A rank that is closed waits for the others to confirm, and they are driven by the same thread: not for long, then.
    return UcxTransport::create(rank, ranks, std::move(lookup), {.close_timeout = 0.01, .expected_peers = 0});
  }
};
#endif

}  // namespace epccl::transports
