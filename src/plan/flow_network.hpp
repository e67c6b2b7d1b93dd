// Network flows in virtual time: max-min fair shares of every link's egress and ingress.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/equal_share.hpp"
#include "plan/timeline.hpp"

namespace epccl::plan {

/// Flows between the same two *ports* (a node's network link, with an egress and an ingress) get equal rates and share one
/// *route*, so that sharing out the rates anew costs the number of routes in use (at most ports squared), whatever the
/// number of flows.
class FlowNetwork {
 public:
  /// Each port's rate in bytes per second, out as well as in. Flows end, and rates change, at multiples of `grain` only.
  FlowNetwork(const std::vector<double>& rates, Ticks grain);

  /// A flow of `bytes` > 0 between two ports; `name` comes back when it ends.
  void start(Ticks now, int source, int destination, uint64_t bytes, uint32_t name);

  /// When a flow ends or rates are to be shared out; never when idle.
  Ticks next() const { return next_; }

  /// Does what is due at `now` == next(). Appends the names of the flows that end, in a fixed order.
  void advance(Ticks now, std::vector<uint32_t>& ended);

  /// Per port; busy times of flows that have ended.
  std::vector<LinkLoad> egress() const { return loads(links_.data()); }
  std::vector<LinkLoad> ingress() const { return loads(links_.data() + ports_); }

 private:
  struct Route {
    int32_t source = 0, destination = 0;
    EqualShare flows;
    bool shared = false;  // while sharing: has its rate
  };
  struct Link {
    uint64_t bytes = 0;
    Ticks busy = 0, busy_since = 0;
    int flows = 0;
    double rate = 0;               // bytes per tick
    double free = 0;               // while sharing: capacity not given away
    int unshared = 0;              // while sharing: flows without a rate
    std::vector<uint32_t> routes;  // those in use
  };

  uint32_t route_of(int source, int destination);
  void change_flows(Ticks now, Route& route, int by);
  bool end_flows(Ticks now, std::vector<uint32_t>& ended);
  void drop_idle_routes();
  void share(Ticks now);
  void fill(Ticks now, Link& link);
  Ticks round_up(Ticks time) const;
  Link& egress_of(const Route& route) { return links_[static_cast<size_t>(route.source)]; }
  Link& ingress_of(const Route& route) { return links_[ports_ + static_cast<size_t>(route.destination)]; }
  std::vector<LinkLoad> loads(const Link* first) const;

  size_t ports_;
  Ticks grain_;
  Ticks next_ = never;
  std::vector<Link> links_;          // egress of every port, then ingress
  std::vector<uint32_t> route_ids_;  // [source * ports + destination]
  std::vector<Route> routes_;
  std::vector<uint32_t> in_use_;  // routes with flows, in order of their first
};

}  // namespace epccl::plan
