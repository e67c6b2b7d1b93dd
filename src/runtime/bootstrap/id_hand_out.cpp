#include <poll.h>
#include <sodium.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "base/clock.hpp"
#include "base/descriptor_limit.hpp"
#include "base/log.hpp"
#include "runtime/bootstrap/handshake.hpp"
#include "runtime/bootstrap/id_exchange.hpp"
#include "runtime/bootstrap/overdue.hpp"

namespace epccl::runtime {
namespace {

constexpr double caller_patience = 5;     // seconds rank 0 gives one connection
constexpr double port_patience = 2;       // seconds a rank gives one port to say something
constexpr double retry_pause = 0.05;      // seconds between rounds over the ports
constexpr double free_port_patience = 2;  // seconds rank 0 waits for one of its ports to become free
constexpr size_t max_callers = 1024;
constexpr std::array<char, 8> magic = {'E', 'P', 'C', 'C', 'L', '-', 'H', 'O'};

using Key = std::array<unsigned char, crypto_secretbox_KEYBYTES>;

/// nonce, then the encrypted and authenticated payload.
template <size_t Payload>
struct Sealed {
  std::array<unsigned char, crypto_secretbox_NONCEBYTES> nonce;
  std::array<unsigned char, crypto_secretbox_MACBYTES + Payload> box;
};

template <size_t Payload>
Sealed<Payload> seal(const Key& key, const std::array<std::byte, Payload>& payload) {
  Sealed<Payload> out;
  randombytes_buf(out.nonce.data(), out.nonce.size());
  crypto_secretbox_easy(out.box.data(), reinterpret_cast<const unsigned char*>(payload.data()), Payload,
                        out.nonce.data(), key.data());
  return out;
}

template <size_t Payload>
std::optional<std::array<std::byte, Payload>> unseal(const Key& key, const Sealed<Payload>& sealed) {
  std::array<std::byte, Payload> payload;
  if (crypto_secretbox_open_easy(reinterpret_cast<unsigned char*>(payload.data()), sealed.box.data(),
                                 sealed.box.size(), sealed.nonce.data(), key.data()) != 0)
    return std::nullopt;
  return payload;
}

struct Offer {
  std::array<char, 8> magic;
  Sealed<128> id;
};
using RankBytes =
    std::array<std::byte, 36>;  // the first 32 bytes of the offer's box, so that it answers this offer; rank
using Receipt = Sealed<36>;

RankBytes receipt_for(const Offer& offer, int rank) {
  RankBytes bytes{};
  std::memcpy(bytes.data(), offer.id.box.data(), 32);
  for (size_t i = 0; i < 4; ++i)
    bytes[32 + i] = static_cast<std::byte>(static_cast<uint32_t>(rank) >> (8 * i));
  return bytes;
}

Key derive_key(const std::string& identity) {
  Key key;
  crypto_generichash(key.data(), key.size(), reinterpret_cast<const unsigned char*>(identity.data()),
                     identity.size(), nullptr, 0);
  return key;
}

enum class Read : uint8_t { all, ended, failed };

/// Exactly `into`, within the deadline. `ended`: the other end has closed the connection in order.
Read read_all(int fd, std::span<std::byte> into, double deadline) {
  while (!into.empty()) {
    const ssize_t got = recv(fd, into.data(), into.size(), 0);
    if (got > 0) {
      into = into.subspan(static_cast<size_t>(got));
    } else if (got == 0) {
      return Read::ended;
    } else if ((errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) ||
               !net::wait_for(fd, POLLIN, deadline)) {
      return Read::failed;
    }
  }
  return Read::all;
}

/// Rank 0's side: callers in any number and order, none of which can hold up the others.
class Counter {
 public:
  Counter(const UniqueId& id, const Key& key, int ranks)
      : key_(key), here_(static_cast<size_t>(ranks), false) {
    offer_.magic = magic;
    offer_.id = seal(key, id.bytes);
    here_[0] = true;
    left_ = ranks - 1;
  }

  int left() const { return left_; }

  void serve(int listener, double deadline) {
    // Those that there is no room for would be told of again and again.
    std::vector<pollfd> entries = {{callers_.size() < max_callers ? listener : -1, POLLIN, 0}};
    for (const auto& [fd, caller] : callers_) entries.push_back({fd, POLLIN, 0});
    const double wait = std::clamp(deadline - now_seconds(), 0.0, 0.2);
    if (poll(entries.data(), entries.size(), static_cast<int>(std::ceil(wait * 1e3))) < 0) return;
    for (const pollfd& entry : entries) {
      if (entry.revents == 0) continue;
      if (entry.fd == listener) {
        accept_all(listener);
      } else {
        hear(entry.fd);
      }
    }
    std::erase_if(callers_, [now = now_seconds()](const auto& each) {
      const bool is_late = now >= each.second.deadline;
      if (is_late) reset_at_close(each.second.fd.get());
      return is_late;
    });
  }

  std::string missing() const {
    std::string text;
    for (size_t rank = 0; rank < here_.size(); ++rank) {
      if (!here_[rank]) text += fmt::format("{}{}", text.empty() ? "" : ", ", rank);
    }
    return text;
  }

 private:
  struct Caller {
    UniqueFd fd;
    double deadline = 0;
    std::array<std::byte, sizeof(Receipt)> bytes{};
    size_t got = 0;
  };

  /// To a caller a connection that is closed in order says that it is counted.
  static void reset_at_close(int fd) {
    const linger reset{1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  }

  void accept_all(int listener) {
    while (callers_.size() < max_callers) {
      UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd && errno == EMFILE && raise_descriptor_limit()) continue;
      if (!fd) return;
      make_room_above(fd.get());
      // A fresh socket takes this much at once, or it is not worth serving.
      if (send(fd.get(), &offer_, sizeof offer_, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof offer_))
        continue;
      const int number = fd.get();
      callers_[number] = Caller{std::move(fd), now_seconds() + caller_patience, {}, 0};
    }
  }

  void hear(int fd) {
    Caller& caller = callers_[fd];
    const ssize_t got = recv(fd, caller.bytes.data() + caller.got, caller.bytes.size() - caller.got, 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (got > 0) caller.got += static_cast<size_t>(got);
    if (got > 0 && caller.got < caller.bytes.size()) return;
    if (caller.got == caller.bytes.size())
      check(caller);
    else
      reset_at_close(fd);
    callers_.erase(fd);
  }

  void check(const Caller& caller) {
    Receipt receipt;
    std::memcpy(&receipt, caller.bytes.data(), sizeof receipt);
    const auto payload = unseal(key_, receipt);
    for (size_t rank = 0; payload && rank < here_.size(); ++rank) {
      if (here_[rank] || *payload != receipt_for(offer_, static_cast<int>(rank))) continue;
      here_[rank] = true;
      --left_;
      return;
    }
    if (!payload)
      log::warn(log::init, 0, "id hand-out: {} answered without the job's key",
                net::peer_name(caller.fd.get()));
  }

  Key key_;
  Offer offer_{};
  std::vector<bool> here_;
  int left_ = 0;
  std::map<int, Caller> callers_;
};

/// Where rank 0 listens for those who know it as `host`: at that address, where it is written as one, or at localhost. A
/// name may mean another address here than elsewhere (Debian's hosts file has 127.0.1.1 beside a machine's own name), or
/// several: then at any address, as where the one that is written is not this machine's own (behind a translated address).
std::vector<net::Endpoint> places_to_listen(const std::string& host, std::vector<net::Endpoint> places) {
  if (net::means_loopback(host)) return places;
  if (!net::is_literal(host)) places.clear();
  net::Endpoint any;
  places.push_back(any);                     // [::], and IPv4
  any.address[10] = any.address[11] = 0xff;  // 0.0.0.0
  places.push_back(any);
  return places;
}

/// Why nobody may find rank 0, which is here and known as `host`, of these addresses; else "".
std::string doubt_about(const std::string& host, const std::vector<net::Endpoint>& addresses) {
  if (std::ranges::any_of(addresses, net::is_of_this_machine)) return "";
  const std::string address = addresses.front().host();
  return fmt::format("{}{} is no address of this machine, where rank 0 is: name the host of rank 0", host,
                     address == host ? "" : fmt::format(" ({})", address));
}

/// Listens at the first port that is free there.
Result<UniqueFd> open_counter(const IdHandOut& hand_out, const std::vector<net::Endpoint>& addresses) {
  const std::vector<net::Endpoint> places = places_to_listen(hand_out.host, addresses);
  Status last;
  const double deadline = now_seconds() + free_port_patience;
  do {
    for (net::Endpoint at : places) {
      for (const uint16_t port : hand_out.ports) {
        at.port = port;
        auto listener = net::listen_at(at);
        if (listener.ok()) return listener;
        last = std::move(listener).take_status();
      }
    }
    // Somebody's outgoing connection may have one for a moment.
    poll(nullptr, 0, static_cast<int>(retry_pause * 1e3));
  } while (now_seconds() < deadline);
  return std::move(last).with_context("rank 0: no port to hand out the id");
}

struct Taken {
  UniqueId id;
  bool is_counted = false;  // rank 0 has said that it knows
};

/// The id, when the one who listens at `at` is rank 0 of this job. `refused`: nobody listens there.
Result<Taken> fetch(const net::Endpoint& at, const Key& key, int rank, double deadline, bool& refused) {
  const double patience = std::min(port_patience, std::max(0.01, deadline - now_seconds()));
  const auto fd = net::connect_to(at, patience);
  refused = !fd.ok() && fd.status().code() == Code::remote_error;
  if (!fd.ok()) return Status(Code::system_error, fd.status().message());  // nobody there has said anything
  Offer offer;
  if (read_all(fd->get(), std::as_writable_bytes(std::span(&offer, 1)), now_seconds() + patience) !=
          Read::all ||
      offer.magic != magic)
    return error(Code::remote_error, "another program listens at {}", at.to_string());
  const auto bytes = unseal(key, offer.id);
  if (!bytes) return error(Code::remote_error, "rank 0 of another job listens at {}", at.to_string());
  const Receipt receipt = seal(key, receipt_for(offer, rank));
  if (send(fd->get(), &receipt, sizeof receipt, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof receipt))
    return system_error(errno, fmt::format("answering {}", at.to_string()));
  // Rank 0 hangs up when it has the receipt.
  std::byte end;
  const Read answer = read_all(fd->get(), std::span(&end, 1), now_seconds() + patience);
  return Taken{UniqueId{*bytes}, answer == Read::ended};
}

}  // namespace

Status IdHandOut::give(const UniqueId& id, int ranks, double timeout) const {
  EPCCL_TRY(start_crypto());
  // Once: while a name server is asked, which may be dead by now, nobody is served.
  EPCCL_ASSIGN(const std::vector<net::Endpoint> addresses, net::resolve(host, 0));
  EPCCL_ASSIGN(const UniqueFd listener, open_counter(*this, addresses));
  const double deadline = now_seconds() + timeout;
  Counter counter(id, derive_key(identity), ranks);
  Overdue overdue(0, timeout);
  const auto missing = [&] {
    const std::string doubt = doubt_about(host, addresses);
    return fmt::format("missing: {}{}{}", counter.missing(), doubt.empty() ? "" : "; ", doubt);
  };
  while (counter.left() > 0 && now_seconds() < deadline) {
    counter.serve(listener.get(), deadline);
    overdue.look([&] { return fmt::format("for ranks to come to {} for the id; {}", host, missing()); });
  }
  if (counter.left() == 0) return {};
  return error(Code::remote_error, Reason::timeout,
               "rank 0: {} of {} ranks came to {} for the id within {} s; {}", ranks - counter.left(), ranks,
               host, timeout, missing());
}

std::string IdHandOut::doubt_about_host() const {
  const auto addresses = net::resolve(host, 0);
  return addresses.ok() ? doubt_about(host, *addresses) : "";
}

Result<UniqueId> IdHandOut::take(int rank, double timeout) const {
  EPCCL_TRY(start_crypto());
  const Key key = derive_key(identity);
  const double deadline = now_seconds() + timeout;
  Overdue overdue(rank, timeout);
  Status last, heard;  // what somebody who listens there said tells more than the ports where nobody does
  std::optional<std::pair<net::Endpoint, UniqueId>> taken;  // where, without hearing that it is counted
  do {
    // Resolved anew each time: a name may appear only when its host is up.
    const auto addresses = net::resolve(host, 0);
    if (!addresses.ok()) last = addresses.status();
    for (net::Endpoint at : addresses.ok() ? *addresses : std::vector<net::Endpoint>()) {
      for (const uint16_t port : ports) {
        at.port = port;
        bool refused = false;
        auto offered = fetch(at, key, rank, deadline, refused);
        if (offered.ok() && offered->is_counted) return offered->id;
        // Rank 0 is through, so it has counted this one: what it said was lost.
        if (refused && taken && taken->first == at) return taken->second;
        if (offered.ok())
          taken.emplace(at, offered->id);
        else
          (offered.status().code() == Code::remote_error ? heard : last) = std::move(offered).take_status();
      }
    }
    overdue.look([&] { return fmt::format("for rank 0 to hand out the id at {}", host); });
    poll(nullptr, 0, static_cast<int>(retry_pause * 1e3));
  } while (now_seconds() < deadline);
  if (taken) return taken->second;
  return error(Code::remote_error, Reason::timeout,
               "rank {}: rank 0 did not hand out the id at {}, ports {} to {}, within {} s ({})", rank, host,
               ports.front(), ports.back(), timeout, heard.ok() ? last.message() : heard.message());
}

}  // namespace epccl::runtime
