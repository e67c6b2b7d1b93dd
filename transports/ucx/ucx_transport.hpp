// Messages between nodes through UCX's tag matching: TCP, and whatever else UCX finds.
//
//   rank A                                             rank B
//   send(B, key) -- endpoint A->B made at the
//                   first send, by lookup(B) --tag A|key-->  matched with recv(A, key), or kept until it is
//                   posted
//
// A receiver needs no endpoint. On TCP every message is eager, whatever its size, unless UCX_RNDV_THRESH says
// otherwise. A connection that breaks fails everything pending from and to that peer, and all that is asked
// of it later, with an error that names the rank; receives from a peer to which nothing was ever sent stay
// pending until cancel_all().
#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "transports/transport.hpp"
#include "transports/ucx/ucx_context.hpp"

namespace epccl::transports {

struct UcxOptions {
  /// How long a regular close waits for the peers to have taken what was sent, in seconds.
  double close_timeout = 1.0;
  /// About how many peers this rank will send to; 0: all. A hint for UCX's choice among RDMA transports.
  int expected_peers = 0;
  /// Whether UCX is given memory of GPUs, where it can move that.
  bool device_memory = true;
};

class UcxTransport final : public MessageTransport {
 public:
  using Options = UcxOptions;

  /// `lookup` is called once per peer, at the first send to it, and may block. Errors: invalid_argument (more
  /// ranks than a tag can name), system_error (no usable device).
  static Result<std::unique_ptr<UcxTransport>> create(int rank, int ranks, AddressLookup lookup,
                                                      Options options = {});

  /// Waits, for close_timeout at most, until what was sent has arrived; what is still pending then fails.
  ~UcxTransport() override;
  UcxTransport(const UcxTransport&) = delete;
  UcxTransport& operator=(const UcxTransport&) = delete;

  /// What the peers' `lookup` must return for this rank.
  std::vector<std::byte> address() const { return address_; }

  const char* name() const override { return "ucx"; }
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
  int event_fd() const override { return event_fd_; }
  bool arm(bool rarely) override;
  /// Final: connections are cut, and every later send and receive fails at once.
  void cancel_all() override;
  const MessageCounters& counters() const override { return counters_; }

 private:
  struct Peer;
  class Gpu;  // memory of one
  /// One message in flight. UCX holds its address until it calls back, so an operation whose completion was
  /// failed before that stays in `detached_`.
  struct Operation {
    UcxTransport* transport = nullptr;
    Peer* peer = nullptr;
    Completion* completion = nullptr;
    void* request = nullptr;  // UCX's, null until it said that the message is in flight
    size_t bytes = 0;
    bool is_send = false;
    std::list<Operation>::iterator self;
    device::Device* device = nullptr;  // into whose memory it receives; null: the host's
  };
  using Operations = std::list<Operation>;

  struct Peer {
    UcxTransport* transport = nullptr;
    int rank = -1;
    ucp_ep_h endpoint = nullptr;
    bool heard = false;  // its hello has come: its connection to this rank exists
    Operations pending;
    // What drained() knows: bytes sent since it last looked, bytes before that which the peer may not have taken yet,
    // and the marker in flight.
    bool dirty = false;
    uint64_t sent_bytes = 0, carried_bytes = 0;
    void* marker = nullptr;
    Status failure;                // once set, nothing can be sent any more
    ucs_status_t broken = UCS_OK;  // UCX reported an error that is not yet handled
  };

  UcxTransport(int rank, int ranks, AddressLookup lookup, Options options,
               std::shared_ptr<ucx::Context> context);
  Status open();
  Peer& peer_at(int rank);
  Status start_send(int peer, MessageKey key, const void* data, size_t bytes, Completion& completion,
                    bool of_gpu);
  Status start_recv(int peer, MessageKey key, void* data, size_t bytes, Completion& completion,
                    device::Device* device);
  Operation& begin(Peer& peer, Completion& completion, size_t bytes, bool is_send);
  void started(Operation& operation, void* request, size_t immediate_bytes);
  void finish(Operation& operation, ucs_status_t status, size_t bytes);
  Status describe(const Operation& operation, ucs_status_t status, size_t bytes) const;
  void recycle(Operation& operation, Operations& from);
  void fail_pending(Peer& peer);
  void mark(Peer& peer);
  bool marker_left(Peer& peer);
  void cut_everything(const Status& reason);
  void flush();
  template <typename Predicate>
  bool wait_until(double deadline, Predicate done);
  void let_go_of_buffers();

  static void on_sent(void* request, ucs_status_t status, void* operation);
  static void on_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                          void* operation);
  static void on_called_back(void* request, ucs_status_t status, size_t bytes, Operation& operation);

  // Connections (ucx_connections.cpp)
  Status connect(Peer& peer);
  void wait_for_hello(const Peer& peer);
  void say_hello(Peer& peer);
  void handle_broken_peers();
  void close_endpoint(Peer& peer);
  static ucs_status_t on_hello(void* transport, const void* header, size_t header_bytes, void* data,
                               size_t bytes, const ucp_am_recv_param_t* parameters);
  static void on_endpoint_error(void* peer, ucp_ep_h endpoint, ucs_status_t status);

  const int rank_, ranks_;
  const AddressLookup lookup_;
  const Options options_;
  std::shared_ptr<ucx::Context> context_;
  const ucx::Library& ucx_;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;
  std::vector<std::byte> address_;
  std::unordered_map<int, Peer> peers_;  // those that were used
  std::vector<Peer*> broken_peers_;
  Operations detached_, free_;
  std::vector<Peer*> dirty_;    // those with `dirty` set
  std::vector<Peer*> marked_;   // those with `marker` set
  std::vector<void*> closing_;  // UCX's requests of endpoints being closed
  Status cancelled_;            // set by cancel_all()
  bool abandoned_ = false;      // UCX holds buffers that are no longer its: the worker may not move any more
  MessageCounters counters_;
};

}  // namespace epccl::transports
