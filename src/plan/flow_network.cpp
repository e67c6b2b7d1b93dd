#include "plan/flow_network.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

namespace epccl::plan {
namespace {

constexpr uint32_t no_route = UINT32_MAX;

}  // namespace

FlowNetwork::FlowNetwork(const std::vector<double>& rates, Ticks grain)
    : ports_(rates.size()),
      grain_(std::max<Ticks>(grain, 1)),
      links_(2 * ports_),
      route_ids_(ports_ * ports_, no_route) {
  for (size_t port = 0; port < ports_; ++port)
    links_[port].rate = links_[ports_ + port].rate = rates[port] / ticks_per_second;
}

uint32_t FlowNetwork::route_of(int source, int destination) {
  uint32_t& id = route_ids_[static_cast<size_t>(source) * ports_ + static_cast<size_t>(destination)];
  if (id == no_route) {
    id = static_cast<uint32_t>(routes_.size());
    routes_.emplace_back();
    routes_.back().source = source;
    routes_.back().destination = destination;
  }
  return id;
}

Ticks FlowNetwork::round_up(Ticks time) const {
  return time == never ? never : (time + grain_ - 1) / grain_ * grain_;
}

void FlowNetwork::change_flows(Ticks now, Route& route, int by) {
  for (Link* link : {&egress_of(route), &ingress_of(route)}) {
    if (link->flows == 0) link->busy_since = now;
    link->flows += by;
    if (link->flows == 0) link->busy += now - link->busy_since;
  }
}

void FlowNetwork::start(Ticks now, int source, int destination, uint64_t bytes, uint32_t name) {
  const uint32_t id = route_of(source, destination);
  Route& route = routes_[id];
  if (route.flows.idle()) {
    in_use_.push_back(id);
    egress_of(route).routes.push_back(id);
    ingress_of(route).routes.push_back(id);
  }
  route.flows.start(now, bytes, name);
  egress_of(route).bytes += bytes;
  ingress_of(route).bytes += bytes;
  change_flows(now, route, 1);
  next_ = std::min(next_, round_up(now));
}

bool FlowNetwork::end_flows(Ticks now, std::vector<uint32_t>& ended) {
  const size_t before = ended.size();
  for (const uint32_t id : in_use_) {
    const size_t first = ended.size();
    routes_[id].flows.end(now, ended);
    if (ended.size() > first) change_flows(now, routes_[id], -static_cast<int>(ended.size() - first));
  }
  return ended.size() > before;
}

void FlowNetwork::drop_idle_routes() {
  const auto idle = [this](uint32_t id) { return routes_[id].flows.idle(); };
  for (Link& link : links_) std::erase_if(link.routes, idle);
  std::erase_if(in_use_, idle);
}

void FlowNetwork::advance(Ticks now, std::vector<uint32_t>& ended) {
  if (end_flows(now, ended)) drop_idle_routes();
  share(now);
}

/// Gives every flow through `link` that has no rate yet an equal part of what the link has left.
void FlowNetwork::fill(Ticks now, Link& link) {
  // Rounding may leave nothing where a sliver should be left; a flow without any rate would never end.
  const double each = std::max(link.free, link.rate * 1e-9) / link.unshared;
  for (const uint32_t id : link.routes) {
    Route& route = routes_[id];
    if (route.shared) continue;
    route.shared = true;
    route.flows.set_rate(now, each);
    const int flows = route.flows.transfers();
    for (Link* end : {&egress_of(route), &ingress_of(route)}) {
      end->free -= each * flows;
      end->unshared -= flows;
    }
  }
}

/// Progressive filling: the link with the smallest equal share is the bottleneck of its flows; what they
/// leave of other links goes to the others. Filling one link never lowers the share of another, so a stale
/// share in the queue is only too small, and is put back with its present one.
void FlowNetwork::share(Ticks now) {
  using Share = std::pair<double, size_t>;
  std::priority_queue<Share, std::vector<Share>, std::greater<>> shares;
  for (const uint32_t id : in_use_) routes_[id].shared = false;
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i].free = links_[i].rate;
    links_[i].unshared = links_[i].flows;
    if (links_[i].flows > 0) shares.emplace(links_[i].rate / links_[i].flows, i);
  }
  while (!shares.empty()) {
    const auto [share, index] = shares.top();
    shares.pop();
    Link& link = links_[index];
    if (link.unshared == 0) continue;
    const double present = link.free / link.unshared;
    if (present > share * (1 + 1e-9)) {
      shares.emplace(present, index);
    } else {
      fill(now, link);
    }
  }
  next_ = never;
  for (const uint32_t id : in_use_) next_ = std::min(next_, round_up(routes_[id].flows.end_at()));
}

std::vector<LinkLoad> FlowNetwork::loads(const Link* first) const {
  std::vector<LinkLoad> loads;
  for (const Link* link = first; link != first + ports_; ++link)
    loads.push_back({link->bytes, to_seconds(link->busy)});
  return loads;
}

}  // namespace epccl::plan
