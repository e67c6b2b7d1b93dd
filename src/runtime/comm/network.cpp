#include "runtime/comm/network.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/log.hpp"
#include "base/net.hpp"
#include "device/gpus.hpp"
#include "topology/discover_machine.hpp"
#include "topology/rail_plan.hpp"
#include "transports/tcp/tcp_transport.hpp"
#ifdef EPCCL_WITH_UCX
#include "transports/ucx/ucx_transport.hpp"
#endif
#ifdef EPCCL_WITH_VERBS
#include "transports/verbs/verbs_transport.hpp"
#endif

namespace epccl::runtime {

using Network = std::unique_ptr<transports::MessageTransport>;

namespace {

Result<Network> open_tcp(Bootstrap& bootstrap, const topology::Cluster& cluster, int rank, double link_rate) {
  EPCCL_ASSIGN(const net::Endpoint here, net::local_address(net::selected_interfaces()));
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
                         [[maybe_unused]] const topology::Cluster& cluster, int rank,
                         [[maybe_unused]] const CommConfig& config,
                         [[maybe_unused]] const std::string& key = "ucx") {
#ifdef EPCCL_WITH_UCX
  const auto lookup = [&bootstrap, key](int peer) { return bootstrap.lookup(peer, key); };
  transports::UcxOptions options;
  options.expected_peers = cluster.nodes() - 1;
  options.device_memory = config.network_settings.gpu_direct != GpuDirect::never;
  EPCCL_ASSIGN(auto ucx, transports::UcxTransport::create(rank, cluster.ranks(), lookup, options));
  EPCCL_TRY(bootstrap.publish(key, ucx->address()));
  return Network(std::move(ucx));
#else
  return error(Code::invalid_usage, "rank {}: EPCCL_NET=ucx, and this build has no UCX", rank);
#endif
}

#ifdef EPCCL_WITH_VERBS
transports::verbs::LentBy device_memory_ways(GpuDirect wish) {
  using transports::verbs::LentBy;
  switch (wish) {
    case GpuDirect::automatic:
      return LentBy::either;
    case GpuDirect::dmabuf:
      return LentBy::descriptor;
    case GpuDirect::peermem:
      return LentBy::address;
    case GpuDirect::never:
      break;
  }
  return LentBy::nothing;
}

transports::VerbsOptions verbs_options(const NetworkSettings& wishes) {
  transports::VerbsOptions options;
  options.ports.devices = wishes.verbs_devices;
  if (wishes.gid_index) options.ports.gid_index = *wishes.gid_index;
  options.failover = wishes.rail_failover;
  constexpr int rails_without_plan = 2;
  options.ports.most = wishes.rails.value_or(rails_without_plan);
  options.eager_limit = wishes.eager_limit;
  options.device_memory = device_memory_ways(wishes.gpu_direct);
  options.silence = wishes.silence;
  return options;
}

/// The GPU that a rank will use, as machines name it; nothing where that is not known.
std::optional<topology::BusId> bus_id_of(std::optional<int> gpu, int rank) {
  if (!gpu) return std::nullopt;
  const auto place = device::cuda_pci_place(*gpu);
  if (place.ok()) return topology::BusId{place->domain, place->bus, place->device, 0};
  log::info(log::net, rank, "rail plan: where GPU {} is on the bus is not known: {}", *gpu,
            place.status().message());
  return std::nullopt;
}

/// The devices that the rail plan of machines like this gives to a rank: those of its GPU, or else of its position, the same on
/// every node.
void prefer_planned_devices(const topology::Cluster& cluster, int rank, const CommConfig& config,
                            transports::VerbsOptions& options) {
  if (!options.ports.devices.empty()) return;
  // Looking at a machine takes long; it stays what it is.
  static const Result<topology::Machine>& machine =
      *new Result<topology::Machine>(topology::discover_machine());
  if (!machine.ok()) return;
  const int local = cluster.local_of(rank), ranks = cluster.local_size(cluster.node_of(rank));
  const auto bus_id = bus_id_of(config.gpu, rank);
  const auto place = topology::place_of_rank(*machine, cluster.nodes(), ranks, local, bus_id);
  if (!place.ok()) return;
  const bool by_gpu =
      bus_id && place->gpu >= 0 && machine->gpus[static_cast<size_t>(place->gpu)].bus_id == *bus_id;
  for (const int nic : place->nics) {
    const std::string& device = machine->nics[static_cast<size_t>(nic)].rdma_device;
    if (!device.empty()) options.ports.preferred.push_back(device);
  }
  log::info(log::net, rank, "rail plan: {} for {} ({})", fmt::join(options.ports.preferred, ", "),
            by_gpu ? fmt::format("GPU {}", place->gpu) : fmt::format("position {} of {}", local, ranks),
            place->why);
  if (config.network_settings.rails || options.ports.preferred.empty()) return;
  // One more than planned where there must be something to go over to.
  options.ports.most = std::max(static_cast<int>(options.ports.preferred.size()), options.failover ? 2 : 1);
}
#endif

Result<Network> open_verbs([[maybe_unused]] Bootstrap& bootstrap,
                           [[maybe_unused]] const topology::Cluster& cluster, int rank,
                           [[maybe_unused]] const CommConfig& config,
                           [[maybe_unused]] const std::string& key = "verbs") {
#ifdef EPCCL_WITH_VERBS
  EPCCL_ASSIGN(const net::Endpoint here, net::local_address(net::selected_interfaces()));
  const auto lookup = [&bootstrap, key](int peer) { return bootstrap.lookup(peer, key); };
  transports::VerbsOptions options = verbs_options(config.network_settings);
  prefer_planned_devices(cluster, rank, config, options);
  auto opened = transports::VerbsTransport::create(rank, cluster.ranks(), here, lookup, std::move(options));
  if (!opened.ok()) return std::move(opened).take_status().with_context(fmt::format("rank {}", rank));
  std::unique_ptr<transports::VerbsTransport> verbs = std::move(opened).value();
  EPCCL_TRY(bootstrap.publish(key, verbs->address()));
  log::info(log::net, rank, "rails: {}", fmt::join(verbs->rails(), ", "));
  return Network(std::move(verbs));
#else
  return error(Code::invalid_usage, "rank {}: EPCCL_NET=verbs, and this build has no libibverbs", rank);
#endif
}

}  // namespace

bool has_rdma_devices() {
  std::error_code none;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", none);
  return !none && devices != std::filesystem::directory_iterator();
}

Status verbs_usable() {
  EPCCL_ASSIGN(const NetworkSettings wishes, read_network_settings());
  return verbs_usable(wishes);
}

Status verbs_usable([[maybe_unused]] const NetworkSettings& wishes) {
#ifdef EPCCL_WITH_VERBS
  EPCCL_ASSIGN(const auto* library, transports::verbs::Library::get());
  return transports::verbs::open_ports(*library, verbs_options(wishes).ports).status();
#else
  return error(Code::invalid_usage, "this build has no libibverbs");
#endif
}

Result<std::string> try_gpu_direct([[maybe_unused]] int ordinal) {
#ifdef EPCCL_WITH_VERBS
  namespace verbs = transports::verbs;
  EPCCL_ASSIGN(const auto* library, verbs::Library::get());
  EPCCL_ASSIGN(const NetworkSettings wishes, read_network_settings());
  const transports::VerbsOptions options = verbs_options(wishes);
  EPCCL_ASSIGN(auto ports, verbs::open_ports(*library, options.ports));
  std::vector<std::unique_ptr<verbs::Rail>> rails;
  for (auto& port : ports) {
    EPCCL_ASSIGN(auto rail, verbs::Rail::open(*library, std::move(port), {}));
    rails.push_back(std::move(rail));
  }
  EPCCL_ASSIGN(device::Device * gpu, device::cuda_device(ordinal));
  constexpr uint64_t bytes = 2 << 20;
  EPCCL_ASSIGN(void* memory, gpu->allocate(device::MemoryKind::shareable, bytes));
  const auto way = [&]() -> Result<std::string> {
    uint64_t registrations = 0;
    verbs::DeviceRegistrations registered(options.device_memory);
    EPCCL_ASSIGN(const auto memory_region, registered.get(rails, *gpu, memory, bytes, registrations));
    return std::string(memory_region->region()->way());
  }();
  EPCCL_TRY(gpu->free(memory));
  return way;
#else
  return error(Code::invalid_usage, "this build has no libibverbs");
#endif
}

uint32_t rdma_drivers(const CommConfig& config) {
  const bool asked = config.network == NetworkKind::automatic || config.network == NetworkKind::measured;
  if (!asked || !has_rdma_devices()) return 0;
  uint32_t drivers = 0;
#ifdef EPCCL_WITH_VERBS
  const Status usable = verbs_usable(config.network_settings);
  if (usable.ok()) drivers |= verbs_driver;
  if (!usable.ok()) log::info(log::net, -1, "verbs cannot be used here: {}", usable.message());
#endif
#ifdef EPCCL_WITH_UCX
  // Where verbs can be used UCX is the others' choice at most, and is opened when it is made.
  const bool is_second = config.network == NetworkKind::automatic && drivers != 0;
  const Status is_there = is_second ? Status() : transports::ucx::Library::get().status();
  if (is_there.ok()) drivers |= ucx_driver;
  if (!is_there.ok()) log::info(log::net, -1, "UCX cannot be used here: {}", is_there.message());
#endif
  return drivers;
}

Result<Network> open_network(Bootstrap& bootstrap, const topology::Cluster& cluster, int rank,
                             const CommConfig& config, uint32_t drivers) {
  if (cluster.nodes() == 1) return Network{};
  NetworkChoice choice = choose_network(config.network, drivers);
  if (config.network == NetworkKind::measured && drivers == all_rdma_drivers) {
    const auto open = [&](NetworkKind kind, const std::string& key) {
      return kind == NetworkKind::verbs ? open_verbs(bootstrap, cluster, rank, config, key)
                                        : open_ucx(bootstrap, cluster, rank, config, key);
    };
    EPCCL_ASSIGN(choice, measure_networks(bootstrap, rank, cluster.rank_at(0, 0), cluster.rank_at(1, 0),
                                          config.wait.timeout_seconds, open));
  }
  if (choice.kind == NetworkKind::none)
    return error(Code::invalid_usage, "the ranks are on {} nodes, and EPCCL_NET=none allows no network",
                 cluster.nodes());
  EPCCL_ASSIGN(Network network,
               choice.kind == NetworkKind::verbs ? open_verbs(bootstrap, cluster, rank, config)
               : choice.kind == NetworkKind::ucx ? open_ucx(bootstrap, cluster, rank, config)
                                                 : open_tcp(bootstrap, cluster, rank, config.link_rate));
  log::info(log::net, rank, "network transport {}: {}", network->name(), choice.why);
  return network;
}

}  // namespace epccl::runtime
