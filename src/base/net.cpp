#include "base/net.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <strings.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>

#include "base/allowed_calls.hpp"
#include "base/clock.hpp"
#include "base/descriptor_limit.hpp"
#include "base/log.hpp"
#include "base/settings.hpp"

namespace epccl::net {
namespace {

constexpr std::array<uint8_t, 12> ipv4_prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress to_socket_address(const Endpoint& endpoint) {
  SocketAddress out;
  if (endpoint.is_ipv4()) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(endpoint.port);
    std::memcpy(&v4.sin_addr, endpoint.address.data() + ipv4_prefix.size(), 4);
    std::memcpy(&out.storage, &v4, sizeof v4);
    out.length = sizeof v4;
  } else {
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(endpoint.port);
    v6.sin6_scope_id = endpoint.scope;
    std::memcpy(&v6.sin6_addr, endpoint.address.data(), 16);
    std::memcpy(&out.storage, &v6, sizeof v6);
    out.length = sizeof v6;
  }
  return out;
}

std::optional<Endpoint> from_socket_address(const sockaddr* address) {
  Endpoint out;
  if (address && address->sa_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, address, sizeof v4);
    std::copy(ipv4_prefix.begin(), ipv4_prefix.end(), out.address.begin());
    std::memcpy(out.address.data() + ipv4_prefix.size(), &v4.sin_addr, 4);
    out.port = ntohs(v4.sin_port);
    return out;
  }
  if (address && address->sa_family == AF_INET6) {
    sockaddr_in6 v6;
    std::memcpy(&v6, address, sizeof v6);
    std::memcpy(out.address.data(), &v6.sin6_addr, 16);
    out.scope = v6.sin6_scope_id;
    out.port = ntohs(v6.sin6_port);
    return out;
  }
  return std::nullopt;
}

struct Interface {
  std::string name;
  Endpoint endpoint;
  bool loopback = false;
  bool running = true;  // false: its link is not there yet, or its other end is not
};

/// Interfaces that are up, IPv4 before IPv6; IPv6's link-local addresses are left out because their scope means nothing on
/// another machine, and IPv6's of a link that is not running because nobody can listen there.
Result<std::vector<Interface>> interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) return system_error(errno, "listing network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(raw, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* entry = raw; entry; entry = entry->ifa_next) {
    const auto endpoint = from_socket_address(entry->ifa_addr);
    if (!endpoint || (entry->ifa_flags & IFF_UP) == 0) continue;
    const bool is_running = (entry->ifa_flags & IFF_RUNNING) != 0;
    const bool is_link_local = endpoint->address[0] == 0xfe && (endpoint->address[1] & 0xc0) == 0x80;
    if (!endpoint->is_ipv4() && (is_link_local || !is_running)) continue;
    found.push_back({entry->ifa_name, *endpoint, (entry->ifa_flags & IFF_LOOPBACK) != 0, is_running});
  }
  std::stable_sort(found.begin(), found.end(), [](const Interface& a, const Interface& b) {
    return a.endpoint.is_ipv4() > b.endpoint.is_ipv4();
  });
  return found;
}

Result<UniqueFd> open_socket(int family) {
  EPCCL_TRY(check_allowed_calls());
  constexpr int type = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  UniqueFd fd(socket(family, type, 0));
  if (!fd && errno == EMFILE && raise_descriptor_limit()) fd = UniqueFd(socket(family, type, 0));
  if (!fd) return descriptor_error(errno, "opening a socket");
  make_room_above(fd.get());
  return fd;
}

}  // namespace

bool Endpoint::is_ipv4() const {
  return std::equal(ipv4_prefix.begin(), ipv4_prefix.end(), address.begin());
}

bool Endpoint::is_loopback() const {
  if (is_ipv4()) return address[ipv4_prefix.size()] == 127;
  return address.back() == 1 &&
         std::all_of(address.begin(), address.end() - 1, [](uint8_t b) { return b == 0; });
}

bool Endpoint::is_ipv4_link_local() const {
  return is_ipv4() && address[ipv4_prefix.size()] == 169 && address[ipv4_prefix.size() + 1] == 254;
}

std::string Endpoint::host() const {
  char text[INET6_ADDRSTRLEN] = "?";
  if (is_ipv4())
    inet_ntop(AF_INET, address.data() + ipv4_prefix.size(), text, sizeof text);
  else
    inet_ntop(AF_INET6, address.data(), text, sizeof text);
  return text;
}

std::string Endpoint::to_string() const {
  return is_ipv4() ? fmt::format("{}:{}", host(), port) : fmt::format("[{}]:{}", host(), port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  HostPort out;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos) return error(Code::invalid_argument, "\"{}\": no ] after [", text);
    out.host = text.substr(1, close - 1);
    port = text.substr(close + 1);
    if (!port.empty() && !port.starts_with(':'))
      return error(Code::invalid_argument, "\"{}\": want [address]:port", text);
    if (!port.empty()) port.remove_prefix(1);
  } else {
    const auto colon = text.rfind(':');
    // More than one colon and no brackets: an IPv6 address without a port.
    const bool has_port = colon != std::string_view::npos && text.find(':') == colon;
    out.host = has_port ? text.substr(0, colon) : text;
    if (has_port) port = text.substr(colon + 1);
  }
  if (out.host.empty()) return error(Code::invalid_argument, "\"{}\": no host; want host:port", text);
  if (!port.empty()) {
    const auto [end, code] = std::from_chars(port.data(), port.data() + port.size(), out.port);
    if (code != std::errc() || end != port.data() + port.size())
      return error(Code::invalid_argument, "\"{}\": \"{}\" is not a port", text, port);
  }
  return out;
}

namespace {

Result<std::vector<Endpoint>> look_up(const std::string& host, uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* raw = nullptr;
  if (const int code = getaddrinfo(host.c_str(), nullptr, &hints, &raw); code != 0)
    return error(Code::system_error, "resolving host \"{}\": {}", host, gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(raw, freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* entry = raw; entry; entry = entry->ai_next) {
    if (auto endpoint = from_socket_address(entry->ai_addr)) {
      endpoint->port = port;
      endpoints.push_back(*endpoint);
    }
  }
  if (endpoints.empty()) return error(Code::system_error, "host \"{}\" has no address", host);
  return endpoints;
}

}  // namespace

Result<std::vector<Endpoint>> resolve(const std::string& host, uint16_t port) {
  return look_up(host, port, 0);
}

bool is_literal(const std::string& host) {
  return look_up(host, 0, AI_NUMERICHOST).ok();
}

bool means_loopback(const std::string& host) {
  if (const auto literal = look_up(host, 0, AI_NUMERICHOST); literal.ok())
    return literal->front().is_loopback();
  for (const char* name :
       {"localhost", "localhost.localdomain", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback"}) {
    if (strcasecmp(host.c_str(), name) == 0) return true;
  }
  return false;
}

namespace {

/// The place in `selection` of the first word that means the interface; nothing when it is not meant. What the selection does
/// not list (it is empty, or means all but some) has place 0.
std::optional<size_t> place_in(const std::string& selection, const std::string& name) {
  if (selection.empty()) return 0;
  std::string_view rest = selection;
  const bool inverted = rest.starts_with('^');
  if (inverted) rest.remove_prefix(1);
  const bool exact = rest.starts_with('=');
  if (exact) rest.remove_prefix(1);
  std::optional<size_t> matched;
  for (size_t place = 0; !rest.empty() && !matched; ++place) {
    const auto comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (!word.empty() && (exact ? name == word : name.starts_with(word))) matched = place;
  }
  if (inverted) return matched ? std::nullopt : std::optional<size_t>(0);
  return matched;
}

}  // namespace

bool interface_selected(const std::string& selection, const std::string& name) {
  return place_in(selection, name).has_value();
}

namespace {

// Degrees of remoteness().
constexpr int reachable = 0, bridge = 1, link_local = 2, not_running = 3, of_containers = 4, loopback = 5;

/// br0: a machine's own, or the same on each of them for what runs there.
bool is_bridge(std::string_view interface) {
  return interface.starts_with("bridge") ||
         (interface.starts_with("br") && interface.size() > 2 && interface[2] >= '0' && interface[2] <= '9');
}

bool is_of_containers(std::string_view interface) {
  constexpr std::string_view names[] = {"docker",       "br-",     "virbr",   "cni",  "podman",
                                        "lxc",          "lxd",     "flannel", "cali", "cilium_",
                                        "vxlan.calico", "vboxnet", "vmnet"};
  return std::ranges::any_of(names, [&](std::string_view name) { return interface.starts_with(name); });
}

}  // namespace

int remoteness(const std::string& interface, const Endpoint& at, bool is_loopback, bool is_running) {
  if (is_loopback) return loopback;
  if (is_of_containers(interface)) return is_running ? of_containers : loopback + 1;
  if (!is_running) return not_running;
  if (at.is_ipv4_link_local()) return link_local;
  return is_bridge(interface) ? bridge : reachable;
}

namespace {

struct Selection {
  const char* setting;
  std::string interfaces;
};
Selection find_selection() {
  const char* const of_nccl = std::getenv("NCCL_SOCKET_IFNAME");
  if (of_nccl == nullptr || *of_nccl == 0 || settings::get_explicit("EPCCL_SOCKET_IFNAME"))
    return {"EPCCL_SOCKET_IFNAME", settings::get("EPCCL_SOCKET_IFNAME")};
  return {"NCCL_SOCKET_IFNAME", of_nccl};
}

}  // namespace

std::string selected_interfaces() {
  return find_selection().interfaces;
}

Result<Endpoint> local_address(const std::string& selection) {
  EPCCL_ASSIGN(const std::vector<Interface> all, interfaces());
  const Interface* best = nullptr;
  std::tuple<bool, size_t, int> best_order;  // the first match, and what others reach before what they do not
  std::vector<std::string> names;            // each once, however many addresses it has
  for (const Interface& candidate : all) {
    if (std::ranges::find(names, candidate.name) == names.end()) names.push_back(candidate.name);
    const auto place = place_in(selection, candidate.name);
    if (!place) continue;
    // Of those that are named one that is not running is the last resort.
    const std::tuple order(
        !selection.empty() && !candidate.running, *place,
        remoteness(candidate.name, candidate.endpoint, candidate.loopback, candidate.running));
    if (best && order >= best_order) continue;
    best = &candidate;
    best_order = order;
  }
  if (!best && !selection.empty())
    return error(Code::invalid_usage, "{}=\"{}\" matches no interface that is up; there are: {}",
                 find_selection().setting, selection, fmt::join(names, ", "));
  if (!best) return error(Code::system_error, "no network interface is up, not even loopback");
  Endpoint endpoint = best->endpoint;
  endpoint.port = 0;
  if (!best->running)
    log::info(log::net, -1,
              "{} at {} is taken although its link is not running: none that runs goes before it", best->name,
              endpoint.host());
  else if (best->loopback && selection.empty())
    log::info(log::net, -1, "{} at {} is taken, as no other interface is up: other machines do not reach it",
              best->name, endpoint.host());
  return endpoint;
}

Result<UniqueFd> listen_at(Endpoint& at) {
  SocketAddress address = to_socket_address(at);
  EPCCL_ASSIGN(UniqueFd fd, open_socket(address.storage.ss_family));
  const int on = 1;
  if (at.port != 0) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int off = 0;  // whatever net.ipv6.bindv6only says
  if (!at.is_ipv4()) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (bind(fd.get(), address.get(), address.length) != 0)
    return system_error(errno, fmt::format("binding {}", at.to_string()));
  if (listen(fd.get(), SOMAXCONN) != 0)
    return system_error(errno, fmt::format("listening at {}", at.to_string()));
  address.length = sizeof address.storage;
  if (getsockname(fd.get(), address.get(), &address.length) != 0)
    return system_error(errno, "asking for the port that was bound");
  if (const auto bound = from_socket_address(address.get())) at.port = bound->port;
  return fd;
}

bool is_of_this_machine(Endpoint at) {
  at.port = 0;
  SocketAddress address = to_socket_address(at);
  const auto fd = open_socket(address.storage.ss_family);
  return !fd.ok() || bind(fd->get(), address.get(), address.length) == 0 || errno != EADDRNOTAVAIL;
}

std::string doubt_about(const Endpoint& at) {
  if (at.is_loopback())
    return "if that is another machine's rank, EPCCL_SOCKET_IFNAME or the interfaces there leave it a "
           "loopback address";
  if (!is_of_this_machine(at)) return "";
  return "that address is also one of this machine's own: if another machine's rank is meant, let "
         "EPCCL_SOCKET_IFNAME name "
         "an interface whose address differs from machine to machine";
}

bool bound_by_this_process(const Endpoint& at) {
  std::error_code ended;
  for (std::filesystem::directory_iterator each("/proc/self/fd", ended), end; !ended && each != end;
       each.increment(ended)) {
    SocketAddress own;
    own.length = sizeof own.storage;
    if (getsockname(std::atoi(each->path().filename().c_str()), own.get(), &own.length) != 0) continue;
    if (from_socket_address(own.get()) == at) return true;
  }
  return false;
}

Result<UniqueFd> open_socket_for(const Endpoint& to) {
  return open_socket(to_socket_address(to).storage.ss_family);
}

namespace {

// Where nobody listens that is the other end's fault; all else is this machine's, or may pass.
Status connect_error(int code, const Endpoint& to) {
  Status why = system_error(code, fmt::format("connecting to {}", to.to_string()));
  return code == ECONNREFUSED ? Status(Code::remote_error, why.message()) : why;
}

}  // namespace

Status start_connect(int fd, const Endpoint& to) {
  SocketAddress address = to_socket_address(to);
  if (connect(fd, address.get(), address.length) != 0 && errno != EINPROGRESS && errno != EINTR)
    return connect_error(errno, to);
  return {};
}

Result<UniqueFd> start_connect(const Endpoint& to) {
  EPCCL_ASSIGN(UniqueFd fd, open_socket_for(to));
  EPCCL_TRY(start_connect(fd.get(), to));
  return fd;
}

Status finish_connect(int fd, const Endpoint& to) {
  int code = 0;
  socklen_t length = sizeof code;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length);
  if (code != 0) return connect_error(code, to);
  // A port of this machine's own ephemeral range can connect to itself when nobody listens there.
  SocketAddress self;
  self.length = sizeof self.storage;
  getsockname(fd, self.get(), &self.length);
  if (const auto own = from_socket_address(self.get());
      own && own->address == to.address && own->port == to.port) {
    const linger reset{1, 0};  // at once: the port is wanted by whom this was meant for
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    return connect_error(ECONNREFUSED, to);
  }
  return {};
}

Result<UniqueFd> connect_to(const Endpoint& to, double timeout) {
  EPCCL_ASSIGN(UniqueFd fd, start_connect(to));
  if (!wait_for(fd.get(), POLLOUT, now_seconds() + timeout))
    return system_error(ETIMEDOUT, fmt::format("connecting to {}", to.to_string()));
  EPCCL_TRY(finish_connect(fd.get(), to));
  return fd;
}

void set_control_line_options(int fd, double timeout) {
  const int on = 1;
  constexpr double longest_idle = 32767,
                   longest_give_up = 2e9;  // what the kernel takes: seconds, milliseconds
  const int idle = static_cast<int>(std::lround(std::clamp(timeout / 8, 1.0, longest_idle)));
  const int probes = 4;
  const auto give_up_ms = static_cast<unsigned>(std::clamp(timeout * 750, 1000.0, longest_give_up));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof give_up_ms);
}

Status why_ended(int cause) {
  const bool silent = cause == ETIMEDOUT || cause == EHOSTUNREACH || cause == ENETUNREACH;
  return {Code::remote_error, silent ? Reason::unreachable : Reason::none,
          system_error(cause, silent ? "its machine does not answer" : "its connection broke").message()};
}

std::string fate_of_peer(const Status& why) {
  return fmt::format("{}: {}", why.reason() == Reason::unreachable ? "is out of reach" : "died",
                     why.message());
}

std::string peer_name(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (getpeername(fd, address.get(), &address.length) != 0) return "?";
  const auto endpoint = from_socket_address(address.get());
  return endpoint ? endpoint->to_string() : "?";
}

bool wait_for(int fd, short events, double deadline, int also) {
  for (;;) {
    std::array<pollfd, 2> entries{{{fd, events, 0}, {also, POLLIN, 0}}};  // poll() passes over -1
    const double left = deadline - now_seconds();
    const int milliseconds = left <= 0 ? 0 : static_cast<int>(std::min(std::ceil(left * 1e3), 1e9));
    const int ready = poll(entries.data(), entries.size(), milliseconds);
    if (ready > 0) return true;
    if (ready == 0 && now_seconds() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace epccl::net
