#include "runtime/comm/network.hpp"

#include "base/log.hpp"
#ifdef EPCCL_WITH_UCX
#include "transports/ucx/ucx_transport.hpp"
#endif

namespace epccl::runtime {

using Network = std::unique_ptr<transports::MessageTransport>;

Result<Network> open_network(Bootstrap& bootstrap, const topology::Cluster& cluster, int rank, bool allowed) {
  if (cluster.nodes() == 1) return Network{};
  if (!allowed)
    return error(Code::invalid_usage, "the ranks are on {} nodes, and EPCCL_NET=none allows no network", cluster.nodes());
#ifdef EPCCL_WITH_UCX
  const auto lookup = [&bootstrap](int peer) { return bootstrap.lookup(peer, "ucx"); };
  transports::UcxOptions options;
  options.expected_peers = cluster.nodes() - 1;
  EPCCL_ASSIGN(std::unique_ptr<transports::UcxTransport> ucx,
               transports::UcxTransport::create(rank, cluster.ranks(), lookup, options));
  EPCCL_TRY(bootstrap.publish("ucx", ucx->address()));
  log::info(log::net, rank, "network transport ucx");
  return Network(std::move(ucx));
#else
  (void)bootstrap;
  return error(Code::invalid_usage, "rank {}: the ranks are on {} nodes, and this build has no network transport (UCX)",
               rank, cluster.nodes());
#endif
}

}  // namespace epccl::runtime
