#include "runtime/comm/network.hpp"

#include <filesystem>

#include "base/log.hpp"
#include "base/net.hpp"
#include "base/settings.hpp"
#include "transports/tcp/tcp_transport.hpp"
#ifdef EPCCL_WITH_UCX
#include "transports/ucx/ucx_transport.hpp"
#endif

namespace epccl::runtime {

using Network = std::unique_ptr<transports::MessageTransport>;

namespace {

Result<Network> open_tcp(Bootstrap& bootstrap, const topology::Cluster& cluster, int rank, double link_rate) {
  EPCCL_ASSIGN(const net::Endpoint here, net::local_address(settings::get("EPCCL_SOCKET_IFNAME")));
  const auto lookup = [&bootstrap](int peer) { return bootstrap.lookup(peer, "tcp"); };
  transports::TcpOptions options;
  options.link_rate = link_rate;
  for (int other = 0; other < cluster.ranks(); ++other) options.node_of.push_back(cluster.node_of(other));
  EPCCL_ASSIGN(auto tcp,
               transports::TcpTransport::create(rank, cluster.ranks(), here, lookup, std::move(options)));
  EPCCL_TRY(bootstrap.publish("tcp", tcp->address()));
  return Network(std::move(tcp));
}

Result<Network> open_ucx([[maybe_unused]] Bootstrap& bootstrap,
                         [[maybe_unused]] const topology::Cluster& cluster, int rank) {
#ifdef EPCCL_WITH_UCX
  const auto lookup = [&bootstrap](int peer) { return bootstrap.lookup(peer, "ucx"); };
  transports::UcxOptions options;
  options.expected_peers = cluster.nodes() - 1;
  EPCCL_ASSIGN(auto ucx, transports::UcxTransport::create(rank, cluster.ranks(), lookup, options));
  EPCCL_TRY(bootstrap.publish("ucx", ucx->address()));
  return Network(std::move(ucx));
#else
  return error(Code::invalid_usage, "rank {}: EPCCL_NET=ucx, and this build has no UCX", rank);
#endif
}

}  // namespace

bool can_use_rdma() {
#ifdef EPCCL_WITH_UCX
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return !none && devices != std::filesystem::directory_iterator();
#else
  return false;
#endif
}

Result<Network> open_network(Bootstrap& bootstrap, const topology::Cluster& cluster, int rank,
                             const CommConfig& config, bool all_have_rdma) {
  const NetworkKind kind = config.network;
  if (cluster.nodes() == 1) return Network{};
  if (kind == NetworkKind::none)
    return error(Code::invalid_usage, "the ranks are on {} nodes, and EPCCL_NET=none allows no network",
                 cluster.nodes());
  const bool use_ucx = kind == NetworkKind::ucx || (kind == NetworkKind::automatic && all_have_rdma);
  EPCCL_ASSIGN(Network network, use_ucx ? open_ucx(bootstrap, cluster, rank)
                                        : open_tcp(bootstrap, cluster, rank, config.link_rate));
  const char* why = kind != NetworkKind::automatic ? "as EPCCL_NET says"
                    : all_have_rdma                ? "every rank has an RDMA device"
                                    : "not every rank has an RDMA device and a UCX to drive it";
  log::info(log::net, rank, "network transport {}: {}", network->name(), why);
  return network;
}

}  // namespace epccl::runtime
