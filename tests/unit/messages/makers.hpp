// The transports that the message tests hold to one contract.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/net.hpp"
#include "transports/tcp/tcp_transport.hpp"
#ifdef EPCCL_WITH_UCX
#include "transports/ucx/ucx_transport.hpp"
#endif
#ifdef EPCCL_WITH_VERBS
#include "transports/verbs/verbs_transport.hpp"
#endif

namespace epccl::transports {

// What a maker says of its transport besides making it:
//   reaches_itself       a rank may send to itself
//   sends_unasked        a send of any size is done before its receive is posted
//   missing()            why it cannot be had on this machine; empty: it can
struct Tcp {
  using Transport = TcpTransport;
  static constexpr const char* name = "tcp";
  static constexpr bool reaches_itself = false, sends_unasked = true;
  static std::string missing() { return {}; }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    EPCCL_ASSIGN(const net::Endpoint loopback, net::local_address("lo"));
    return TcpTransport::create(rank, ranks, loopback, std::move(lookup));
  }
};

#ifdef EPCCL_WITH_UCX
struct Ucx {
  using Transport = UcxTransport;
  static constexpr const char* name = "ucx";
  static constexpr bool reaches_itself = true, sends_unasked = true;
  static std::string missing() { return {}; }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    // A rank that is closed waits for the others to confirm, and they are driven by the same thread: not for long, then.
    return UcxTransport::create(rank, ranks, std::move(lookup), {.close_timeout = 0.01, .expected_peers = 0});
  }
};
#endif

#ifdef EPCCL_WITH_VERBS
struct Verbs {
  using Transport = VerbsTransport;
  static constexpr const char* name = "verbs";
  static constexpr bool reaches_itself = false, sends_unasked = false;
  static std::string missing() {
    const auto library = verbs::Library::get();
    if (!library.ok()) return library.status().message();
    const auto ports = verbs::open_ports(**library, {});
    return ports.ok() ? "" : ports.status().message();
  }
  /// On the machine of tests/rdma/run even ranks are on one node and odd ones on the other.
  static VerbsOptions options(int rank) {
    VerbsOptions options;
    options.ports.devices = "^" + std::string(rank % 2 == 0 ? "n1r" : "n0r");
    // A rank that is closed waits for the others, and they are driven by the same thread: not for long, then.
    options.close_timeout = 0.2;
    options.silence = 0.4;
    return options;
  }
  static Result<std::unique_ptr<Transport>> create(int rank, int ranks, AddressLookup lookup) {
    return create_with(options(rank), rank, ranks, std::move(lookup));
  }
  static Result<std::unique_ptr<Transport>> create_with(const VerbsOptions& options, int rank, int ranks,
                                                        AddressLookup lookup) {
    EPCCL_ASSIGN(const net::Endpoint loopback, net::local_address("lo"));
    return VerbsTransport::create(rank, ranks, loopback, std::move(lookup), options);
  }
};
#endif

}  // namespace epccl::transports
