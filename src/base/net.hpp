// TCP sockets, for the rendezvous and for the tcp transport: addresses as people write them, which interface to use,
// listening, connecting, noticing a peer that is cut off.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.hpp"
#include "base/unique_fd.hpp"

namespace epccl::net {

/// An IPv4 address (as an IPv4-mapped one) or IPv6 address, and a port.
struct Endpoint {
  std::array<uint8_t, 16> address{};
  uint32_t scope = 0;  // IPv6 link-local only
  uint16_t port = 0;
  uint16_t unused = 0;  // it is sent as it lies in memory

  bool is_ipv4() const;
  bool is_loopback() const;
  bool is_ipv4_link_local() const;  // 169.254.0.0/16
  std::string host() const;         // "10.0.0.1", "fe80::1"
  std::string to_string() const;    // "10.0.0.1:4242", "[fe80::1]:4242"
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// "host:port", "[v6]:port" or "host" (port 0) taken apart.
struct HostPort {
  std::string host;
  uint16_t port = 0;
};
Result<HostPort> parse_host_port(std::string_view text);

/// Addresses of a host name, or of a literal address. `port` is put into each.
Result<std::vector<Endpoint>> resolve(const std::string& host, uint16_t port);

/// Whether `host` is an address, and not a name for one.
bool is_literal(const std::string& host);

/// Whether the text itself means the machine that reads it: "localhost", "127.0.0.1", "::1". A name to which a machine's
/// hosts file gives a loopback address is not such a text: to other machines it is another address.
bool means_loopback(const std::string& host);

/// What EPCCL_SOCKET_IFNAME selects, or where that is unset NCCL_SOCKET_IFNAME, whose language it has; "" = any.
std::string selected_interfaces();

/// The address this machine should be reached at: of the interfaces that are up those that the first word of `selection`
/// (EPCCL_SOCKET_IFNAME's language; "" = any) means that means any, and of these the first with the least remoteness(), IPv4
/// before IPv6. Port 0. An error that lists the interfaces when `selection` matches none.
Result<Endpoint> local_address(const std::string& selection);

/// Whether an interface name is meant by `selection`: "eth,ib" by prefix, "=eth0" exactly, "^docker" all but.
bool interface_selected(const std::string& selection, const std::string& name);

/// How little use an address is to other machines, by what its interface is called. Least for what they can probably reach; then
/// br0 and its like (the machine's own, or only of what runs there), 169.254.0.0/16 (most often the port of a management controller,
/// with the same address on every machine), an interface whose link is not running (yet), those of containers and virtual
/// machines, the loopback interface, those of containers whose link is not running.
int remoteness(const std::string& interface, const Endpoint& at, bool is_loopback, bool is_running = true);

/// A listening socket; `at.port` is filled in when it was 0. At [::] it takes IPv4 too. Close-on-exec, non-blocking.
Result<UniqueFd> listen_at(Endpoint& at);

/// Whether it is one of this machine's own addresses; true as well where that cannot be found out.
bool is_of_this_machine(Endpoint at);

/// What may be wrong with the address of a rank where nobody answers who should: that it means this machine. "" where it does not.
std::string doubt_about(const Endpoint& at);

/// Whether a socket of this process is bound to that address and port, whatever part of the process made it.
bool bound_by_this_process(const Endpoint& at);

/// One attempt to connect within `timeout` seconds. Close-on-exec, non-blocking.
Result<UniqueFd> connect_to(const Endpoint& to, double timeout);

/// The same without waiting: the socket becomes writable when the attempt is over, and finish_connect() tells how it went.
Result<UniqueFd> start_connect(const Endpoint& to);
/// The same in two steps: what goes wrong in the first is this machine's, in the second perhaps the other's.
Result<UniqueFd> open_socket_for(const Endpoint& to);
Status start_connect(int fd, const Endpoint& to);
Status finish_connect(int fd, const Endpoint& to);

/// No delay, and an error on the socket when the peer's machine has not answered for about 3/4 of `timeout`
/// seconds.
void set_control_line_options(int fd, double timeout);

/// Why a connection ended by this error: "its connection broke: ...", or where the peer's machine is silent, "its machine does not
/// answer: ..." with Reason::unreachable.
Status why_ended(int cause);
/// "died: ...", or of one that is unreachable, "is out of reach: ...".
std::string fate_of_peer(const Status& why);

/// Address of the other end, for messages; "?" when it has none.
std::string peer_name(int fd);

/// Waits for poll `events`, or until `also` (where it is not -1) is readable. False when `deadline` (now_seconds()) passed first.
bool wait_for(int fd, short events, double deadline, int also = -1);

}  // namespace epccl::net
