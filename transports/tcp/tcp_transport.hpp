// Messages between nodes over plain TCP sockets: one connection a pair of ranks, made when first needed.
//
// For clusters without RDMA. Sockets never block; one epoll descriptor stands for all of them, so a rank that has nothing
// to do can sleep on it. Layers, lowest first: tcp_handshake.hpp (who may connect), message_stream.hpp and lane.hpp (messages
// on one socket), this (which sockets there are).
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/net.hpp"
#include "base/unique_fd.hpp"
#include "transports/strangers.hpp"
#include "transports/tcp/lane.hpp"
#include "transports/tcp/message_stream.hpp"
#include "transports/tcp/tcp_handshake.hpp"
#include "transports/transport.hpp"

namespace epccl::transports {

struct TcpOptions {
  /// Bytes per second of the network link; 0: unknown. With a known rate a connection holds at most about a millisecond's
  /// worth of unsent data: more would only let it crowd out the other connections of the link. While arm() is asked to wake
  /// rarely it holds more.
  double link_rate = 0;
  /// Nodes of the ranks. Empty: this rank neither has lanes nor lets others in.
  std::vector<int> node_of;
};

class TcpTransport final : public MessageTransport, private Lanes {
 public:
  /// Listens at `at`; a port of 0 lets the system choose, which is what one wants. `lookup` is called once per peer, at the
  /// first send to it, and may block. Errors: invalid_argument (rank), system_error (cannot listen there).
  static Result<std::unique_ptr<TcpTransport>> create(int rank, int ranks, const net::Endpoint& at,
                                                      AddressLookup lookup, TcpOptions options = {});

  /// What was sent and done arrives; what is still pending fails.
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  /// What the peers' `lookup` must return for this rank.
  std::vector<std::byte> address() const { return address_.encode(); }

  const char* name() const override { return "tcp"; }
  /// A message that fails before it is under way (but one whose arguments are wrong) fails its completion too, with the status that is returned.
  Status send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion) override;
  Status recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) override;
  bool progress() override;
  /// Always: a send is done when the kernel has all of it.
  bool drained() override { return true; }
  int event_fd() const override { return epoll_.get(); }
  bool arm(bool rarely) override;
  /// Final: connections are cut, and every later send and receive fails at once.
  void cancel_all() override;
  const MessageCounters& counters() const override { return counters_; }
  Lanes* lanes() override { return options_.node_of.empty() ? nullptr : this; }

 private:
  enum class State : uint8_t {
    unconnected,
    connecting,  // dialled
    proving,     // Hello is out, the verdict is not in
    declined,    // the peer's own connection will come
    open,
  };
  struct Peer {
    Peer(int rank_, int self, std::span<std::byte> staging, MessageCounters& counters)
        : rank(rank_), stream(self, rank_, staging, counters) {}
    const int rank;
    State state = State::unconnected;
    UniqueFd dialled;  // connecting and proving
    tcp::Address address;
    bool busy = false;  // in busy_
    tcp::MessageStream stream;
  };
  using Stranger = Strangers<tcp::Hello>::Stranger;

  TcpTransport(int rank, int ranks, AddressLookup lookup, const TcpOptions& options);
  Status open(const net::Endpoint& at);
  Peer& peer_at(int rank);
  Status dial(Peer& peer);
  void set_stream_options(int fd) const;
  void set_send_buffer(int fd) const;
  Status watch(int fd, uint64_t what);
  bool poll_events();
  void handle(uint64_t what, uint32_t events);
  void on_peer(Peer& peer, uint32_t events);
  void on_dialled(Peer& peer);
  void on_verdict(Peer& peer);
  void accept();
  bool admit(Stranger& stranger);
  void open_stream(Peer& peer, UniqueFd socket);
  void keep_busy(Peer& peer);
  bool pump(Peer& peer);
  void fail(Peer& peer, Status why);
  void fail_all(const Status& why);
  void log_failure(const Peer& peer) const;
  Status outcome(Peer& peer, const Completion& completion);

  // Lanes (tcp_lanes.cpp)
  uint64_t allowance(int destination) override;
  void frame(int destination, MessageKey key, const void* data, size_t bytes, std::byte* at) override;
  void unframe(int destination, uint64_t bytes) override;
  bool open(int destination) override;
  size_t room(int destination) override;
  size_t write(int destination, std::span<const iovec> pieces) override;
  void cut(int destination) override;
  Status dial_lane(int destination, tcp::OutLane& lane);
  bool admit_lane(Stranger& stranger);
  void on_in_lane(uint64_t number, uint32_t events);
  bool deliver(int carrier, const tcp::FrameHeader& header, std::span<const std::byte> data);

  const int rank_, ranks_;
  const AddressLookup lookup_;
  const TcpOptions options_;
  tcp::Address address_;
  UniqueFd listener_, epoll_;
  std::vector<std::byte> staging_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null: not used so far
  std::vector<Peer*> busy_;                   // those whose stream may move without news
  bool arms_rarely_ = false;  // some streams may have a low-water mark, and send buffers are large
  Strangers<tcp::Hello> strangers_{ranks_};
  std::unordered_map<int, tcp::OutLane> out_lanes_;     // by destination
  std::unordered_map<uint64_t, tcp::InLane> in_lanes_;  // by the number their strangers had
  Status cancelled_;
  MessageCounters counters_;
};

}  // namespace epccl::transports
