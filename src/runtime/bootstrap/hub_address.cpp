#include "runtime/bootstrap/hub_address.hpp"

#include <string>

#include "base/log.hpp"
#include "base/settings.hpp"
#include "runtime/bootstrap/launch_env.hpp"

namespace epccl::runtime {
namespace {

/// EPCCL_COMM_ID's address. Where the machine's own hosts file gives that name a loopback address only, the one that interfaces
/// give: the id is for other machines.
Result<net::Endpoint> fixed_endpoint(const std::string& fixed) {
  auto parsed = net::parse_host_port(fixed);
  if (!parsed.ok()) return std::move(parsed).take_status().with_context("EPCCL_COMM_ID");
  auto addresses = net::resolve(parsed->host, parsed->port);
  if (!addresses.ok()) return std::move(addresses).take_status().with_context("EPCCL_COMM_ID");
  if (net::means_loopback(parsed->host)) return addresses->front();
  for (const net::Endpoint& at : *addresses)
    if (!at.is_loopback()) return at;
  EPCCL_ASSIGN(net::Endpoint at, address_of_interfaces());
  at.port = parsed->port;
  return at;
}

/// -1: no launcher tells.
int rank_told() {
  const auto env = launch_environment();
  return env.ok() && env->has_value() ? (*env)->rank : -1;
}

}  // namespace

Result<net::Endpoint> address_of_interfaces() {
  return net::local_address(net::selected_interfaces());
}

Result<net::Endpoint> chosen_endpoint() {
  const std::string fixed = settings::get("EPCCL_COMM_ID");
  if (fixed.empty()) return address_of_interfaces();
  const int rank = rank_told();
  if (rank <= 0) {
    EPCCL_ASSIGN(const net::Endpoint at, fixed_endpoint(fixed));
    if (rank == 0 || net::is_of_this_machine(at)) return at;
  }
  log::info(log::init, rank, "EPCCL_COMM_ID={} is where rank 0 is: this id has an address of its own", fixed);
  return address_of_interfaces();
}

}  // namespace epccl::runtime
