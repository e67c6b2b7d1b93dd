// Messages between nodes over RDMA: reliable queue pairs of libibverbs, one for each peer and rail.
//
// Layers, lowest first: verbs_library.hpp (the library), port.hpp (which ports), rail.hpp (a port opened), queue_pair.hpp (what
// is posted), conversation.hpp (messages with one peer), wireup.hpp (how connections come about), this.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/unique_fd.hpp"
#include "transports/transport.hpp"
#include "transports/verbs/conversation.hpp"
#include "transports/verbs/wireup.hpp"

namespace epccl::transports {

struct VerbsOptions {
  verbs::PortChoice ports;
  /// Messages up to this size are sent without asking, with a copy at each end.
  size_t eager_limit = 8 << 10;
  /// A lost rail's traffic goes over the others. False: it ends the connection, with an error.
  bool failover = false;
  /// What stays registered until it is freed or room is needed. `watched` where the kernel permits it, else `windows`.
  verbs::RegisteredMemory::Keep keep = verbs::RegisteredMemory::Keep::watched;
  /// How memory of GPUs may be registered.
  verbs::LentBy device_memory = verbs::LentBy::either;
  /// Null: the process's libibverbs.
  const verbs::Library* library = nullptr;
  /// How long a connection tries without an answer, at least, before it is broken, in seconds.
  double silence = 5.0;
  /// How long a regular close waits for the peers to have what was sent, in seconds.
  double close_timeout = 1.0;
};

class VerbsTransport final : public MessageTransport, private verbs::Connector {
 public:
  using Options = VerbsOptions;

  /// Opens the ports, and listens at `at` (a port of 0: the system chooses) for those who want to connect. `lookup` is called
  /// once per peer, at the first send to it, and may block. Errors: invalid_argument (rank, GID index), system_error (no
  /// library, no port that is up, no memory that may be locked).
  static Result<std::unique_ptr<VerbsTransport>> create(int rank, int ranks, const net::Endpoint& at,
                                                        AddressLookup lookup, Options options = {});

  /// Waits, for close_timeout at most, until what was sent has arrived; what is still pending fails.
  ~VerbsTransport() override;
  VerbsTransport(const VerbsTransport&) = delete;
  VerbsTransport& operator=(const VerbsTransport&) = delete;

  /// What the peers' `lookup` must return for this rank.
  std::vector<std::byte> address() const { return wireup_.address(); }

  const char* name() const override { return "verbs"; }
  /// A message that fails before it is under way (but one whose arguments are wrong) fails its completion too, with the status that is returned.
  Status send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion) override;
  Status recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion) override;
  Result<std::shared_ptr<const DeviceMemory>> device_memory(device::Device& device, const void* data,
                                                            uint64_t bytes) override;
  Status send_from(const DeviceMemory& memory, int peer, MessageKey key, const void* data, size_t bytes,
                   Completion& completion) override;
  Status recv_into(const DeviceMemory& memory, int peer, MessageKey key, void* data, size_t bytes,
                   Completion& completion) override;
  bool progress() override;
  bool drained() override;
  int event_fd() const override { return epoll_.get(); }
  bool arm(bool rarely) override;
  /// Final: queue pairs are destroyed, and every later send and receive fails at once.
  void cancel_all() override;
  const MessageCounters& counters() const override { return shared_.messages; }

  const WorkCounters* work_counters() const override { return &shared_.work; }
  const WorkCounters& work() const { return shared_.work; }
  /// Pieces of memory that are registered.
  size_t kept_registrations() const { return shared_.memory.kept() + shared_.device_memory.kept(); }
  /// The ports in use: "mlx5_0 port 1".
  std::vector<std::string> rails() const;

 private:
  /// Whose queue pair it is.
  struct Owner {
    verbs::Conversation* conversation = nullptr;
    size_t rail = 0;
  };
  /// A new queue pair for a rail that was lost, until it is connected.
  struct RailRenewal {
    std::unique_ptr<verbs::QueuePair> pair;
    bool settled = false;  // the peer has said what it had received over the old one
    bool offered = false;  // the peer's end is known
    verbs::End other;
  };
  struct Peer {
    std::unique_ptr<verbs::Conversation> conversation;
    std::vector<std::unique_ptr<verbs::QueuePair>> pairs;  // until it is open
    std::array<RailRenewal, verbs::max_rails> renewals;
  };

  VerbsTransport(int rank, int ranks, AddressLookup lookup, Options options);
  Status open(const net::Endpoint& at);
  Status start_send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion,
                    const verbs::DeviceRegion* memory);
  Status start_recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion,
                    const verbs::DeviceRegion* memory);
  Peer& peer_at(int rank);
  bool flush();
  void close();
  Result<std::unique_ptr<verbs::QueuePair>> make_pair(Peer& peer, int rank, size_t rail);

  // What devices tell (completions.cpp)
  bool poll_rail(size_t rail);
  void on_completion(size_t rail, const ibv_wc& completion);
  void on_received(size_t rail, const ibv_wc& completion);
  void on_broken(const Owner& owner, const ibv_wc& completion);
  bool poll_events();
  void on_device_events(size_t rail);
  void drain_queues();

  // Rails that fail and come back (rails.cpp)
  struct LostRail {
    int peer;
    size_t rail;
    Status why;
  };
  void settle_lost_rails();
  void lose(const LostRail& lost);
  void offer(int peer_rank, size_t rail);
  void offer_rail_to_all(size_t rail);
  void on_rail_offer(int peer_rank, const verbs::Notice& notice);
  void connect_renewal(int peer_rank, size_t rail);

  // Connector
  Result<verbs::Ends> ends(int peer) override;
  Status connect(int peer, const verbs::Ends& other) override;
  void opened(int peer) override;
  void failed(int peer, Status why) override;
  void noticed(int peer, const verbs::Notice& notice) override;

  // What epoll_ tells: behind Wireup's tags, the rails' completion channels, then their devices' events.
  static constexpr uint64_t channel_tag = verbs::Wireup::tags, device_tag = channel_tag + verbs::max_rails;

  const int rank_, ranks_;
  const Options options_;
  UniqueFd epoll_;
  verbs::Shared shared_;
  std::unordered_map<int, Peer> peers_;                         // those that were used
  std::vector<std::unordered_map<uint32_t, Owner>> by_number_;  // of each rail: queue pairs by number
  std::vector<Owner> by_id_;                                    // by the id of their work requests
  verbs::Wireup wireup_;
  std::vector<LostRail> lost_;  // not dealt with yet: a completion queue is being read
  bool armed_ = false, polling_ = false;
  unsigned quiet_polls_ = 0;
  double next_ask_ = 0;
  Status cancelled_;
};

}  // namespace epccl::transports
